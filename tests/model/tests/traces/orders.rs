//! The message of the traced workers, and its handler.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use idem_conformance::store::World;
use idem_core::{BoxError, Delivery, Handler, State, permanent};
use idem_test::Publication;
use serde::{Deserialize, Serialize};

/// A message: what its handler does in its first attempt, and in later ones.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Order {
    id: String,
    acts: Vec<Act>,
    /// Two messages of one id with different texts are a conflict.
    text: u32,
}

/// What a handler does after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Act {
    Ok,
    Fail,
    /// It fails for good, until the cause is gone.
    Permanent,
    /// It breaks its connection in its first run.
    Break,
    /// It loses a race in its first run.
    LoseRace,
}

impl Order {
    pub(crate) fn new(id: &str, acts: &[Act]) -> Self {
        Self { id: id.to_owned(), acts: acts.to_vec(), text: 1 }
    }

    /// Another message of the same id.
    pub(crate) fn other(self) -> Self {
        Self { text: 2, ..self }
    }
}

impl From<Order> for Publication {
    fn from(order: Order) -> Self {
        Self::json(&order).unwrap()
    }
}

/// The state of the handlers.
#[derive(Clone)]
pub(crate) struct Desk {
    effects: String,
    runs: Arc<Mutex<HashMap<String, usize>>>,
    /// Whether the cause of the failures is gone.
    pub(crate) repaired: Arc<AtomicBool>,
}

impl Desk {
    pub(crate) fn new(effects: String) -> Self {
        Self { effects, runs: Arc::default(), repaired: Arc::default() }
    }

    /// Counts a run, and returns whether it is the first one.
    fn is_first(&self, id: &str) -> bool {
        let mut runs = self.runs.lock().unwrap();
        let runs = runs.entry(id.to_owned()).or_default();
        *runs += 1;
        *runs == 1
    }
}

/// The handler: one effect, then its act.
pub(crate) struct Orders<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Orders<W> {
    const NAME: &'static str = "orders";

    type Params = (State<Desk>, Delivery);

    idem_conformance::keyed_by_id!(Order, W::Connection);

    async fn handle(
        order: Order,
        (State(desk), delivery): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let is_first = desk.is_first(&order.id);
        W::execute(tx, &format!("INSERT INTO {} (name) VALUES ('{}')", desk.effects, order.id)).await?;
        let attempt = delivery.attempt() as usize;
        let act = order.acts.get(attempt - 1).or(order.acts.last()).copied().unwrap_or(Act::Ok);
        match act {
            _ if desk.repaired.load(SeqCst) => Ok(()),
            Act::Fail => Err("failed".into()),
            Act::Permanent => Err(permanent("never")),
            Act::Break if is_first => W::execute(tx, W::FEATURES.terminate_backend.unwrap()).await,
            Act::LoseRace if is_first => W::execute(tx, W::FEATURES.lost_race.unwrap()).await,
            Act::Ok | Act::Break | Act::LoseRace => Ok(()),
        }
    }
}
