//! The handlers of the two consumers, and the message between them.

use idem::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::plan::Order;
use crate::watched::Watch;

/// A message between the two consumers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Paid {
    /// The number of the event that caused it.
    pub(crate) id: u64,
    /// The key.
    pub(crate) account: i32,
    /// Its place among the messages of its key, from 1.
    pub(crate) place: i64,
}

/// Stages one message. Until the commit it keeps the row of its account locked, so that the handlers of one account stage
/// one after the other: otherwise there would be no order to keep.
#[idempotent(key = "key", name = "stage")]
pub(crate) async fn stage(
    order: Order,
    watch: State<Watch>,
    tx: &mut PgConnection,
    outbox: Outbox,
) -> Result<(), BoxError> {
    let _run = watch.0.run(order.id);
    let place = sqlx::query_scalar(
        "WITH next AS (UPDATE demo.accounts SET balance = balance + 1 WHERE account = $1 RETURNING balance)
         INSERT INTO demo.staged (message, account, place) SELECT $2, $1, balance FROM next RETURNING place",
    );
    let place = place.bind(order.account).bind(i64::try_from(order.id)?).fetch_one(tx).await?;
    outbox.publish(watch.0.relayed, &Paid { id: order.id, account: order.account, place })?.key(order.account);
    watch.0.returned(order.id);
    Ok(())
}

/// Records a message that has arrived.
#[idempotent(key = message_id, name = "take")]
pub(crate) async fn take(paid: Paid, watch: State<Watch>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _run = watch.0.run(paid.id);
    sqlx::query("INSERT INTO demo.taken (message, account, place) VALUES ($1, $2, $3)")
        .bind(i64::try_from(paid.id)?)
        .bind(paid.account)
        .bind(paid.place)
        .execute(tx)
        .await?;
    Ok(())
}
