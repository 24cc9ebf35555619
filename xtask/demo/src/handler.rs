//! The handler, an ordinary one: it writes a row through the transaction that it is lent.

use idem::prelude::*;
use sqlx::PgConnection;

use crate::plan::{Fate, Order};
use crate::watched::Watch;

/// Writes the effect, then does what the message is fated to do: so a failure has something to roll back.
#[idempotent(key = "id", name = "pay")]
pub(crate) async fn pay(
    order: Order,
    delivery: Delivery,
    watch: State<Watch>,
    tx: &mut PgConnection,
) -> Result<(), BoxError> {
    let _run = watch.0.run(order.id);
    let id = i64::try_from(order.id)?;
    sqlx::query("INSERT INTO idem_demo_effects.effects (message) VALUES ($1)").bind(id).execute(tx).await?;
    match order.fate {
        Fate::Fails => Err("this one always fails".into()),
        Fate::FailsTwice if delivery.attempt() <= 2 => Err("this one fails twice".into()),
        _ => {
            watch.0.returned.add(order.id);
            Ok(())
        }
    }
}
