//! A handler that pays by an external call, and one that pays in its transaction, with a new key for each request.

use idem::prelude::*;
use sqlx::PgConnection;

use super::provider::Bank;
use crate::plan::Order;
use crate::watched::Watch;

/// The state of the workers that pay.
#[derive(Debug, Clone)]
pub(crate) struct Payer {
    pub(crate) watch: Watch,
    pub(crate) bank: Bank,
}

#[external(key_life = "24h", timeout = "2s")]
pub(crate) async fn charge(order: &Order, key: OutboundKey, State(payer): State<Payer>) -> Result<String, CallError> {
    let _run = payer.watch.run(order.id);
    match payer.bank.charge(Some(key.as_str()), order.id).await? {
        (200, number) => Ok(number),
        (429, why) => Err(CallError::not_done(why)),
        (status, why) => Err(format!("the status {status}: {why}").into()),
    }
}

#[idempotent(key = "key", name = "called", call = charge)]
pub(crate) async fn called(
    order: Order,
    Called(number): Called<String>,
    State(payer): State<Payer>,
    tx: &mut PgConnection,
) -> Result<(), BoxError> {
    let _run = payer.watch.run(order.id);
    write(&order, &number, tx).await
}

#[idempotent(key = "key", name = "naive")]
pub(crate) async fn naive(order: Order, State(payer): State<Payer>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _run = payer.watch.run(order.id);
    let (status, number) = payer.bank.charge(None, order.id).await?;
    if status != 200 {
        return Err(format!("the status {status}").into());
    }
    write(&order, &number, tx).await?;
    payer.watch.returned(order.id);
    Ok(())
}

async fn write(order: &Order, number: &str, tx: &mut PgConnection) -> Result<(), BoxError> {
    let insert = sqlx::query("INSERT INTO demo.payments (message, charge) VALUES ($1, $2)");
    insert.bind(i64::try_from(order.id)?).bind(number).execute(tx).await?;
    Ok(())
}
