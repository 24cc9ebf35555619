//! A witness of each ack: whether the database has what the ack says, at the moment at which it is asked for.

use std::sync::{Arc, Mutex};

use idem::adapter::{Acker, Settled};
use idem::{BoxError, Delivery};
use idem_test::Tapped;
use idem_test::tap::{AckTap, Tap};
use sqlx::postgres::PgPool;

use crate::{Order, World};

/// Looks into the database before it passes an ack on to the broker.
#[derive(Clone)]
pub struct Witness {
    pool: PgPool,
    /// The statement that counts the effects of a message and its rows in the inbox.
    asked: Arc<str>,
    seen: Arc<Mutex<Seen>>,
}

/// The acks that a witness has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The messages that were committed before their ack.
    pub committed: usize,
    /// The messages of which the database had nothing yet.
    pub early: Vec<String>,
}

impl Witness {
    /// Wraps this source, and returns the witness of its acks.
    pub fn new<S>(world: &World, source: S) -> (Tapped<S, Self>, Self) {
        let asked = "SELECT (SELECT count(*) FROM {schema}.effects WHERE id = $1)
                          + (SELECT count(*) FROM {schema}.inbox_messages WHERE payload = $2)";
        let asked = world.stage.sql(asked).0.into();
        let witness = Self { pool: world.pool.clone(), asked, seen: Arc::default() };
        (Tapped::new(source, witness.clone()), witness)
    }

    /// The acks so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Tap for Witness {
    type Ack = Witnessed;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Self::Ack) {
        (delivery.clone(), Witnessed { witness: self.clone(), delivery })
    }
}

/// A delivery that is not settled yet.
pub struct Witnessed {
    witness: Witness,
    delivery: Delivery,
}

impl AckTap for Witnessed {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let Self { witness, delivery } = self;
        let order: Order = serde_json::from_slice(delivery.payload()).unwrap();
        let asked = sqlx::query_scalar::<_, i64>(sqlx::AssertSqlSafe(witness.asked.to_string()));
        let found = asked.bind(&order.id).bind(&delivery.payload()[..]).fetch_one(&witness.pool).await.unwrap();
        match found {
            0 => witness.seen.lock().unwrap().early.push(order.id),
            _ => witness.seen.lock().unwrap().committed += 1,
        }
        acker.ack().await
    }
}
