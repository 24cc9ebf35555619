//! The run of the outbox: relays are killed between a consumer that stages messages and one that takes them.
//!
//! | file | contents |
//! |---|---|
//! | `handlers` | the two consumers' handlers, and the message between them |
//! | `link` | the processes: the worker that stages, the relays, and the worker that takes |
//! | `watched` | the instrumented sink, with the failpoint between confirm and delete |
//! | `rows` | queries of the database |
//! | `run`, `drain` | one complete run |
//! | `judge`, `ledger` | the outcome of each message, and the line |
//!
//! **The order within a key** is read from the broker, by a plain client, after the end: a stream of NATS and a topic of
//! Kafka keep what was taken, and on RabbitMQ a second queue gets each message as well. The consumer would prove less.
//! It receives messages again that were on their way to it when the broker was restarted, on NATS behind later ones, so
//! that its order would be that of the redeliveries and not that of the relays. A message counts where it arrives for
//! the first time, because a copy may arrive behind a later message of its key.

mod drain;
mod handlers;
mod judge;
mod ledger;
mod link;
mod rows;
mod run;
mod watched;

use anyhow::{Result, bail};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};

use crate::servers::Servers;

pub(crate) use link::{Link, run as run_link};
pub(crate) use run::Settings;

/// Runs on each broker. Fails if any run had deviations.
pub(crate) async fn all(settings: &Settings<'_>) -> Result<()> {
    let mut wrong = 0;
    wrong += u64::from(!is_right::<RabbitMq>(settings).await?);
    wrong += u64::from(!is_right::<Nats>(settings).await?);
    wrong += u64::from(!is_right::<Kafka>(settings).await?);
    if wrong > 0 {
        bail!("{wrong} of the runs were not as they must be");
    }
    Ok(())
}

/// Runs on one broker. Fails if the run had deviations.
pub(crate) async fn one<B: Broker>(settings: &Settings<'_>) -> Result<()> {
    if !is_right::<B>(settings).await? {
        bail!("not all is as it must be");
    }
    Ok(())
}

/// Runs once, and prints a line. Returns whether there were no deviations.
async fn is_right<B: Broker>(settings: &Settings<'_>) -> Result<bool> {
    if settings.mode.whole {
        bail!("`--relay` and `--whole` do not go together: messages of batch handlers have random ids");
    }
    println!("seed {}", settings.seed);
    let mut servers = Servers::start::<B>().await?;
    let ledger = run::run::<B>(settings, &mut servers).await?;
    println!("{:8} {ledger}", B::NAME);
    ledger.tell();
    Ok(ledger.is_right())
}
