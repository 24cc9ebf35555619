//! The handlers that are tried, and their codec.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use idem_core::{BoxError, Codec, DecodeError, Delivery, Handler, Key, KeyError, PrepareError, State, permanent};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

#[derive(Serialize, Deserialize)]
pub(crate) struct Paid {
    pub(crate) id: u32,
    pub(crate) amount: i64,
}

/// The state of the tested handlers.
#[derive(Clone, Default)]
pub(crate) struct Shop {
    /// An effect outside of the database, where a handler must not write.
    pub(crate) outside: Arc<AtomicI64>,
    /// The messages that a handler remembers, as in a cache that outlives its process.
    known: Arc<Mutex<HashSet<u32>>>,
}

impl Shop {
    pub(crate) fn outside(&self) -> i64 {
        self.outside.load(SeqCst)
    }

    /// Remembers a message. Returns whether it is new.
    fn remember(&self, paid: &Paid) -> bool {
        self.known.lock().unwrap().insert(paid.id)
    }
}

/// Writes through its transaction.
pub(crate) struct Good;

impl Handler for Good {
    const NAME: &'static str = "paid";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(paid: Paid, _: State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        if paid.amount < 0 {
            return Err(permanent("a negative amount"));
        }
        sqlx::query("UPDATE account SET balance = balance + ?").bind(paid.amount).execute(tx).await?;
        Ok(())
    }
}

/// `Good`, in a release that calls it by another name.
pub(crate) struct Renamed;

impl Handler for Renamed {
    const NAME: &'static str = "settled";
    const FORMERLY: &'static [&'static str] = &[Good::NAME];

    type Message = Paid;
    type Input = Paid;
    type Params = State<Shop>;
    type Connection = SqliteConnection;

    fn key(paid: &Paid, delivery: &Delivery) -> Result<Key, KeyError> {
        Good::key(paid, delivery)
    }

    async fn handle(paid: Paid, state: State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        Good::handle(paid, state, tx).await
    }
}

/// Takes CloudEvents.
pub(crate) struct Event;

impl Handler for Event {
    const NAME: &'static str = "event";
    const NEEDS_CLOUD_EVENT: bool = true;

    type Message = Paid;
    type Input = Paid;
    type Params = State<Shop>;
    type Connection = SqliteConnection;

    fn key(_: &Paid, delivery: &Delivery) -> Result<Key, KeyError> {
        delivery.cloud_event().ok_or(KeyError::Empty)?.key()
    }

    async fn handle(paid: Paid, shop: State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        Good::handle(paid, shop, tx).await
    }
}

/// Writes past the transaction.
pub(crate) struct Bad;

impl Handler for Bad {
    const NAME: &'static str = "paid";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(paid: Paid, State(shop): State<Shop>, _: &mut SqliteConnection) -> Result<(), BoxError> {
        shop.outside.fetch_add(paid.amount, SeqCst);
        // It always waits here, while the answer of a database may be there at once.
        tokio::task::yield_now().await;
        Ok(())
    }
}

/// Skips a message that it knows.
pub(crate) struct Remembers;

impl Handler for Remembers {
    const NAME: &'static str = "paid";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(paid: Paid, State(shop): State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        if shop.remember(&paid) { Good::handle(paid, State(shop), tx).await } else { Ok(()) }
    }
}

/// Fails after its write, the first time that it sees a message.
pub(crate) struct Fails;

impl Handler for Fails {
    const NAME: &'static str = "paid";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(paid: Paid, State(shop): State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        let is_new = shop.remember(&paid);
        Good::handle(paid, State(shop), tx).await?;
        if is_new { Err("the first time".into()) } else { Ok(()) }
    }
}

/// Commits in the middle.
pub(crate) struct Commits;

impl Handler for Commits {
    const NAME: &'static str = "paid";

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(paid: Paid, shop: State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        sqlx::query("COMMIT").execute(&mut *tx).await?;
        Good::handle(paid, shop, tx).await
    }
}

/// Takes one type of event; its key is a header.
pub(crate) struct Typed;

impl Handler for Typed {
    const NAME: &'static str = "typed";
    const EVENT: Option<&'static str> = Some("paid");

    type Message = Paid;
    type Input = Paid;
    type Params = State<Shop>;
    type Connection = SqliteConnection;

    fn key(_: &Paid, delivery: &Delivery) -> Result<Key, KeyError> {
        let id =
            delivery.headers().get_str("event-id").ok_or_else(|| KeyError::Missing { what: "header".to_owned() })?;
        Key::of(id)
    }

    async fn handle(paid: Paid, _: State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        sqlx::query("UPDATE account SET balance = balance + ?").bind(paid.amount).execute(tx).await?;
        Ok(())
    }
}

/// Takes the subjects of a pattern, and a header in their place.
pub(crate) struct Routed;

impl Handler for Routed {
    const NAME: &'static str = "routed";
    const EVENT: Option<&'static str> = Some("orders.*.paid");

    type Params = State<Shop>;

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(paid: Paid, shop: State<Shop>, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        Good::handle(paid, shop, tx).await
    }
}

/// Reads the text `ID AMOUNT`, once it has prepared.
#[derive(Default)]
pub(crate) struct Words(AtomicBool);

impl Codec<Paid> for Words {
    fn decode(&self, delivery: &Delivery) -> Result<Paid, DecodeError> {
        if !self.0.load(SeqCst) {
            return Err(DecodeError::unprepared());
        }
        let (id, amount) = str::from_utf8(delivery.data())?.split_once(' ').ok_or("there are no two words")?;
        Ok(Paid { id: id.parse()?, amount: amount.parse()? })
    }

    async fn prepare(&self, _: &Delivery) -> Result<(), PrepareError> {
        self.0.store(true, SeqCst);
        Ok(())
    }
}
