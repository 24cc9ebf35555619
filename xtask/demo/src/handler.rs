//! The handler, an ordinary one: it writes a row through the transaction that it is lent.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use idem::prelude::*;
use sqlx::PgConnection;

use crate::plan::{Fate, Order};

/// Writes the effect, then does what the message is fated to do: so a failure has something to roll back.
#[idempotent(key = "id", name = "pay")]
pub(crate) async fn pay(
    order: Order,
    delivery: Delivery,
    returned: State<Returned>,
    tx: &mut PgConnection,
) -> Result<(), BoxError> {
    let id = i64::try_from(order.id)?;
    sqlx::query("INSERT INTO idem_demo_effects.effects (message) VALUES ($1)").bind(id).execute(tx).await?;
    match order.fate {
        Fate::Fails => Err("this one always fails".into()),
        Fate::FailsTwice if delivery.attempt() <= 2 => Err("this one fails twice".into()),
        _ => {
            returned.0.add(order.id);
            Ok(())
        }
    }
}

/// The messages whose handler has returned well in this process: if one of them is acked, a commit came before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returned(Arc<Mutex<HashSet<u64>>>);

impl Returned {
    fn add(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    pub(crate) fn has(&self, id: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }
}
