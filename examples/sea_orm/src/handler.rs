//! The handler, which reads, inserts and updates by SeaORM.

use idem::prelude::*;
use sea_orm::{ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, ExprTrait, QueryFilter, Set};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

use crate::in_transaction::InTransaction;
use crate::payment;

#[derive(Serialize, Deserialize)]
pub struct OrderPaid {
    pub event_id: String,
    pub order_id: i64,
    pub amount: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
pub async fn order_paid(event: OrderPaid, tx: &mut PgConnection) -> Result<(), BoxError> {
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
