//! The ordinary handlers: they write rows through the provided transaction.

use idem::prelude::*;
use sqlx::PgConnection;

use crate::careless;
use crate::plan::Order;
use crate::watched::Watch;

/// Writes the effect, then performs the action of the message's fate, so that a failure has something to roll back.
#[idempotent(key = "key", name = "pay")]
pub(crate) async fn pay(order: Order, watch: State<Watch>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _run = watch.0.run(order.id);
    watch.0.signals.wait().await;
    write(std::slice::from_ref(&order), tx).await?;
    careless::act(&order, &watch.0, tx).await?;
    watch.0.returned(order.id);
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
    orders.iter().for_each(|order| watch.0.returned(order.id));
    Ok(())
}

/// Writes a row for each message, and updates the balance of its account.
pub(crate) async fn write(orders: &[Order], tx: &mut PgConnection) -> Result<(), BoxError> {
    let ids = orders.iter().map(|order| i64::try_from(order.id)).collect::<Result<Vec<_>, _>>()?;
    let accounts: Vec<i32> = orders.iter().map(|order| order.account).collect();
    let amounts: Vec<i64> = orders.iter().map(|order| order.amount).collect();
    sqlx::query(
        "WITH paid AS (
             INSERT INTO demo.effects (message, account, amount)
             SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[]) RETURNING account, amount
         )
         UPDATE demo.accounts AS a SET balance = balance + paid.amount
         FROM (SELECT account, sum(amount)::bigint AS amount FROM paid GROUP BY account) AS paid
         WHERE a.account = paid.account",
    )
    .bind(ids)
    .bind(accounts)
    .bind(amounts)
    .execute(tx)
    .await?;
    Ok(())
}
