//! A handler that writes by SeaORM 2, in the transaction of idem.
//!
//! `eval "$(cargo xtask services up)"`, then `cargo run -p idem-example-sea-orm`. Each run uses a new schema,
//! and removes it.

#![allow(unreachable_pub, reason = "SeaORM derives `pub` items")]

mod in_transaction;
mod payment;

use idem::prelude::*;
use idem_test::Trial;
use sea_orm::{ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, ExprTrait, QueryFilter, Set};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use in_transaction::InTransaction;

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    event_id: String,
    order_id: i64,
    amount: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut PgConnection) -> Result<(), BoxError> {
    let db = InTransaction::new(tx);
    match payment::Entity::find().filter(payment::Column::OrderId.eq(event.order_id)).one(&db).await? {
        None => {
            let new =
                payment::ActiveModel { order_id: Set(event.order_id), amount: Set(event.amount), ..Default::default() };
            new.insert(&db).await?;
        }
        Some(payment) => add(&db, payment.id, event.amount).await?,
    }
    if event.amount < 0 {
        return Err(permanent("a negative amount"));
    }
    Ok(())
}

async fn add(db: &InTransaction<'_>, id: i64, amount: i64) -> Result<(), DbErr> {
    payment::Entity::update_many()
        .col_expr(payment::Column::Amount, payment::Column::Amount.into_expr().add(amount))
        .filter(payment::Column::Id.eq(id))
        .exec(db)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "DATABASE_URL is not set: give it the URL of a PostgreSQL database")?;
    let bench = Trial::postgres(url).tables(payment::TABLE);
    let mut db = PgConnection::connect(&bench.url()).await?;
    let trial = bench.handler::<order_paid>().await?;
    let paid = |number: u32, amount| OrderPaid { event_id: format!("e-{number}"), order_id: 7, amount };
    assert_eq!(trial.deliver_json(&paid(1, 25))?.times(2).await?, [Outcome::Processed, Outcome::Duplicate]);
    assert_eq!(trial.deliver_json(&paid(2, 10))?.once().await?, [Outcome::Processed]);
    // SeaORM has written, and idem rolls it back.
    assert_eq!(trial.deliver_json(&paid(3, -5))?.once().await?, [Outcome::dead(idem::Reason::Permanent)]);

    let payments = payment::Entity::find().all(&InTransaction::new(&mut db)).await?;
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

#[test]
fn the_guide_shows_the_connection_as_it_is() {
    let (guide, file) = (include_str!("../../../src/docs/data_layer.md"), include_str!("in_transaction.rs"));
    let code = file.split_once("\n\n").map(|(_, code)| code.trim()).unwrap_or_default();
    assert!(code.contains("impl ConnectionTrait") && guide.contains(code), "copy in_transaction.rs into the guide");
}
