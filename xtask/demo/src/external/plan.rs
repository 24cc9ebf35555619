//! Which requests fail, which rows are held beyond the life of their key, and what is done about rows while the workers run.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Result;
use idem::external::Resolution;
use idem::operator::{Filter, Operator, Page};
use idem::{Postgres, Reason};
use idem_test::provider::{Fault, Provider};
use sqlx::{Connection, PgConnection};

use crate::tables::SCHEMA;
use crate::worker::CONSUMER;

/// Returns a provider, and the messages that are held: no answer to them ever comes, and their keys are too old when they are
/// called for again. One request of a hundred loses its answer, as many are answered by an error that is stored, or by "busy".
pub(super) fn requests(messages: u64, random: &mut fastrand::Rng) -> (Provider, BTreeSet<u64>) {
    let (provider, mut held) = (Provider::new(), BTreeSet::new());
    for id in 0..messages {
        // At least one is held: it is unresolved, and the naive handler charges it at each attempt.
        let drawn = if id == 0 { 0 } else { random.u32(..1000) };
        let faults: &[Fault] = match drawn {
            0 => &[Fault::LoseAnswer; 100],
            1..=10 => &[Fault::LoseAnswer],
            11..=20 => &[Fault::Error],
            21..=30 => &[Fault::Busy],
            31..=35 => &[Fault::LoseRequest],
            _ => &[],
        };
        held.extend((drawn == 0).then_some(id));
        provider.fail(&id.to_string(), faults.iter().copied());
    }
    (provider, held)
}

/// Lets the keys of these messages get too old, once their calls are in doubt.
const OLDER: &str = "UPDATE idem_demo.inbox_messages SET called_at = called_at - interval '1 day'
    WHERE key = ANY(SELECT convert_to('order-' || id, 'UTF8') FROM unnest($1::bigint[]) AS id)
        AND attempts > 0 AND locked_by IS NULL AND called_at > now() - interval '12 hours'";

/// Holds these messages, and does what an operator does about an error that the provider has stored: calls again under another
/// key. Goes on until it is dropped.
pub(super) async fn operate(url: String, held: BTreeSet<u64>) -> Result<()> {
    let held = held.into_iter().map(i64::try_from).collect::<Result<Vec<_>, _>>()?;
    let mut connection = PgConnection::connect(&url).await?;
    let store = Postgres::options(&url).schema(SCHEMA).connections(2).connect().await?;
    let operator = Operator::new(&store).consumer(CONSUMER);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        sqlx::query(OLDER).bind(&held).execute(&mut connection).await?;
        for row in operator.list(&Filter::new().reason(Reason::Exhausted), Page::new(10_000)).await?.rows {
            // The naive handler makes no call that idem knows of.
            if let Some(key) = row.provider_key {
                operator.resolve(row.id, key, Resolution::CallAgain).await?;
            }
        }
    }
}
