//! A handler that writes by SeaORM 2, in the transaction of idem.
//!
//! `eval "$(cargo xtask services up)"`, then `cargo run -p idem-example-sea-orm`. Each run uses a new schema,
//! and removes it.

#![allow(unreachable_pub, reason = "SeaORM derives `pub` items")]

mod handler;
mod in_transaction;
mod payment;

use idem::prelude::*;
use idem_test::Trial;
use sea_orm::EntityTrait;
use sqlx::PgConnection;

use handler::{OrderPaid, order_paid};
use in_transaction::InTransaction;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let trial = Trial::postgres().tables(payment::TABLE).handler::<order_paid>().await?;
    let paid = |number: u32, amount| OrderPaid { event_id: format!("e-{number}"), order_id: 7, amount };
    assert_eq!(trial.deliver_json(&paid(1, 25))?.times(2).await?, [Outcome::Processed, Outcome::Duplicate]);
    assert_eq!(trial.deliver_json(&paid(2, 10))?.once().await?, [Outcome::Processed]);
    // SeaORM has written, and idem rolls it back.
    assert_eq!(trial.deliver_json(&paid(3, -5))?.once().await?, [Outcome::dead(idem::Reason::Permanent)]);

    let payments = trial
        .rolled_back(async |db: &mut PgConnection| Ok(payment::Entity::find().all(&InTransaction::new(db)).await?));
    let payments = payments.await?;
    let amounts: Vec<i64> = payments.iter().map(|payment| payment.amount).collect();
    assert_eq!(amounts, [35]);
    println!("two payments are one row of 35: a copy was skipped, and a failure rolled back");
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BoxError> {
    if std::env::var_os("DATABASE_URL").is_none() {
        return Ok(());
    }
    main()
}
