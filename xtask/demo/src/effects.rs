//! The effects of the messages in the database.

use idem::BoxError;
use sqlx::PgConnection;

use crate::plan::Order;

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
