//! What the suite needs of a key-value store.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use idem_core::key_value::{BestEffort, Id, KeyValueStore, Letter};
use idem_core::{Delivery, Fingerprint, HasConnection, Key, Reason};
use uuid::Uuid;

/// A key-value store with writes that can be refused.
pub trait World: Send + Sync + Sized + 'static {
    /// What handlers write.
    type Writes: Default + Send + Sync + 'static;
    /// The store.
    type Store: KeyValueStore<Writes = Self::Writes>;
    /// The engine of a worker with this store.
    type Engine: HasConnection<Self::Writes> + HasConnection<BestEffort>;

    /// Whether a write can fail behind one that was applied. It cannot if all of them are one transaction.
    const HALF_APPLIES: bool = true;

    /// Connects to an own part of the store. `None`, with a message to the user, if there is no server.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// Returns the store.
    fn store(&self) -> Self::Store;

    /// Returns an engine with this retention.
    fn engine(&self, retention: Duration) -> Self::Engine;

    /// Adds 1 to a counter.
    fn count(writes: &mut Self::Writes, counter: &str);

    /// Adds a write that is refused before anything is written.
    fn refuse(writes: &mut Self::Writes, counter: &str);

    /// Adds a write that fails although nothing foretells it. Not called without [`HALF_APPLIES`](Self::HALF_APPLIES).
    fn fail(writes: &mut Self::Writes, counter: &str);

    /// Reads a counter.
    fn counted(&self, counter: &str) -> impl Future<Output = i64> + Send;
}

/// Names that no other test has.
pub(super) fn unique(what: &str) -> String {
    format!("{what}-{}", Uuid::new_v4().simple())
}

pub(super) fn id(consumer: &str, key: impl AsRef<[u8]>) -> Id {
    let key = Key::of(key.as_ref()).unwrap();
    Id { consumer: Arc::from(consumer), handler: "reserve".into(), key, apart: None }
}

pub(super) fn letter(id: &Id, error: &str) -> Letter {
    let delivery = Delivery::new("orders", &b"\xff{}"[..]).with_message_id(Some("m-1".to_owned()));
    Letter::new(id.clone(), Fingerprint::of(b"{}"), Reason::Exhausted, error, 3, SystemTime::now(), delivery)
}
