//! The ordinary handlers: they write rows through the provided transaction.

use idem::prelude::*;
use sqlx::PgConnection;

use crate::careless;
use crate::effects::write;
use crate::plan::Order;
use crate::watched::Watch;

/// Writes the effect, then performs the action of the message's fate, so that a failure has something to roll back.
#[idempotent(key = "key", name = "pay")]
pub(crate) async fn pay(order: Order, watch: State<Watch>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _run = watch.0.run(order.id);
    watch.0.signals.wait().await;
    write(std::slice::from_ref(&order), tx).await?;
    careless::act(&order, &watch.0, tx).await?;
    watch.0.returned.add(order.id);
    Ok(())
}

/// Does the same for a whole batch, with one statement.
#[idempotent(key = "key", name = "pay")]
pub(crate) async fn pay_many(orders: Batch<Order>, watch: State<Watch>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _runs: Vec<_> = orders.iter().map(|order| watch.0.run(order.id)).collect();
    watch.0.signals.wait().await;
    write(&orders, tx).await?;
    for order in &orders {
        careless::act(order, &watch.0, tx).await?;
    }
    orders.iter().for_each(|order| watch.0.returned.add(order.id));
    Ok(())
}
