//! Deduplication without SQL: Redis, DynamoDB, and a store in memory for tests.
//!
//! These systems have no transaction in which a handler could run. A message has a record instead, whose state changes step by
//! step. While its handler runs, the record has a lease, so that a process that dies loses no message. Each step but the first is
//! fenced by the token of the lease.
//!
//! ```text
//!  (none) -- acquire --> running -- complete --> done -- retention --> (none)
//!               ^         |   |  \-- a write failed behind another --> half -- bury --> dead
//!               +- lease -+   +-- attempts used up, the fifth start -- bury ----------> dead -- resolve --> running, done
//!                  over
//! ```
//!
//! | file | contents |
//! |---|---|
//! | this one | the seam: the steps of a store, and their answers; the engine that a worker takes |
//! | `id` | the name of a record |
//! | `letter` | dead letters |
//! | `start` | the checks at the start of a worker, and its routes |
//! | `run` | one try of a delivery: acquire, handler, complete |
//! | `lease` | the leases that a worker holds, and their renewal |
//! | `memory` | the store in memory |

mod id;
mod lease;
mod letter;
mod memory;
mod run;
mod start;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinSet;
use uuid::Uuid;

use crate::engine::Attempted;
use crate::park::Carried;
use crate::registry::Registered;
use crate::runtime::{Pipeline, Settings};
use crate::store::{Answer, Identity, StoreError, StoreFacts};
use crate::worker::{Queues, Registration};
use crate::{Acker, Delivery, Engine, Error, Fingerprint, HasConnection};

pub use id::Id;
pub(crate) use lease::{HeldLeases, Lease};
pub use letter::{Letter, LetterFilter, Resolve};
pub use memory::Memory;

/// A store of records, one for each consumer, handler and key.
///
/// Each step is atomic, and may be sent again when its answer was lost: [`acquire`](Self::acquire) under its own token is
/// [`Acquired::New`] and counts no further start, and [`complete`](Self::complete) behind its own completion is
/// [`Completed::Yes`].
///
/// A record outlives its lease. It has the fingerprint of the message, the token and the end of the lease, and how often it was
/// started. It ends `keep` after the last step, except as a dead letter, which is kept until somebody
/// [resolves](Self::resolve) it.
///
/// The futures may be dropped at any point: the step is then done, or not done, and is sent again.
///
/// Errors: [`StoreError::Message`] if the store refuses this message and works for others, as with a record of another program
/// under its name; [`StoreError::ConnectionLost`] without an answer; [`StoreError::Unavailable`] if it cannot be used at all.
pub trait KeyValueStore: Clone + Send + Sync + 'static {
    /// What handlers write to the same system. It is applied together with the completion.
    type Writes: Default + Send + Sync + 'static;

    /// Returns the name for the log, without a password.
    fn name(&self) -> String;

    /// Checks that the store keeps records for this time, as far as it can say. Called at the start, each minute, and as a ping.
    ///
    /// # Errors
    /// [`Error::Config`] if it would lose records; the text names the fix. Any other error: it cannot be used now.
    fn check(&self, keep: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Starts a message for as long as the lease, if it is not done, and nobody else's lease lasts.
    fn acquire(
        &self,
        id: &Id,
        fingerprint: Fingerprint,
        token: Uuid,
        lease: Duration,
        keep: Duration,
    ) -> impl Future<Output = Answer<Acquired>> + Send;

    /// Lets the lease last that long from now.
    fn renew(&self, id: &Id, token: Uuid, lease: Duration) -> impl Future<Output = Answer<Held>> + Send;

    /// Completes the message and applies the writes, in one step.
    fn complete(
        &self,
        id: &Id,
        token: Uuid,
        keep: Duration,
        writes: &Self::Writes,
    ) -> impl Future<Output = Answer<Completed>> + Send;

    /// Ends the lease and takes the start back, as if the message had not been acquired.
    fn release(&self, id: &Id, token: Uuid) -> impl Future<Output = Answer<Held>> + Send;

    /// Makes the message a dead letter, in place of its lease. Repeated under the same token, it is [`Held::Yes`].
    fn bury(&self, id: &Id, token: Uuid, letter: &Letter) -> impl Future<Output = Answer<Held>> + Send;

    /// Returns the dead letters that match, in no order; also those that are replayed and not done yet.
    fn dead(&self, filter: &LetterFilter) -> impl Future<Output = Answer<Vec<Letter>>> + Send;

    /// Resolves a dead letter. Returns `false` if there is none under this id. `keep`: for how long copies of a discarded message
    /// are still duplicates.
    ///
    /// A replay lets the message start, with no start counted, and keeps the letter until it is completed or buried: no lease, release or
    /// retention ends it. It can be repeated, and then changes nothing.
    fn resolve(&self, id: &Id, how: Resolve, keep: Duration) -> impl Future<Output = Answer<bool>> + Send;
}

/// The answer to [`acquire`](KeyValueStore::acquire).
// Exhaustive: the core decides by it whether a handler runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// The lease is that of the token.
    New {
        /// How often the message was started, including this start; one under the same token counts once.
        starts: u32,
        /// The time by the store's clock, or the client's if it has none.
        now: SystemTime,
    },
    /// The message is processed, or a dead letter.
    Done {
        /// The fingerprint of the message that has the key.
        fingerprint: Fingerprint,
        /// The time since then.
        age: Duration,
    },
    /// Somebody else runs it.
    Busy {
        /// For how long the lease still lasts.
        left: Duration,
    },
    /// Some of its writes were applied, and the others were not. The lease is that of the token, to bury it. Another message with the
    /// same key, by its fingerprint, is [`Busy`](Self::Busy) until then.
    HalfApplied(String),
}

/// Whether the token still had the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// It had, and the step is done.
    Yes,
    /// It had not, and nothing was written.
    Lost,
}

/// The answer to [`complete`](KeyValueStore::complete).
// Exhaustive: the core decides by it whether the delivery is acked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completed {
    /// The message is processed, and its writes are applied.
    Yes,
    /// The token had no longer the lease. Nothing was written.
    Lost,
    /// The writes cannot be applied, for this reason. Nothing was written, and the lease lasts.
    Refused(String),
    /// A write has failed behind another one that was applied, for this reason. The message must not run again by itself.
    HalfApplied(String),
}

/// Stands for the connection of a handler with `best_effort`: it has none. Its effect is in another system, and is deduplicated:
/// copies do not repeat it, but a process that ends between the effect and the completion does, and so does an attempt that fails behind it.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BestEffort;

/// What a run lends to its handler.
#[derive(Debug, Default)]
pub struct Lent<W> {
    writes: W,
    best_effort: BestEffort,
}

impl<W> Lent<W> {
    /// Returns the writes, to add to them.
    pub fn writes_mut(&mut self) -> &mut W {
        &mut self.writes
    }
}

/// The retention by default: a week.
const RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// What a worker takes in place of a [`Store`](crate::Store): a key-value store, and for how long it keeps its records.
///
/// ```
/// # use idem_core::{Source, Worker, key_value::{KeyValue, Memory}};
/// # fn add(orders: impl Source) {
/// let store: KeyValue<Memory> = KeyValue::new(Memory::new());
/// let worker = Worker::new("search", store, orders);
/// # }
/// ```
#[derive(Clone)]
pub struct KeyValue<K> {
    store: K,
    retention: Duration,
    facts: Arc<StoreFacts>,
}

impl<K: KeyValueStore> KeyValue<K> {
    /// Returns the engine of this store, with a retention of 7 days.
    pub fn new(store: K) -> Self {
        // Its clients share connections, so it has as many as anybody wants.
        let facts = StoreFacts::new(store.name(), usize::MAX, Default::default(), "");
        Self { store, retention: RETENTION, facts: Arc::new(facts) }
    }

    /// Sets for how long a record is kept once its message is processed; 7 days by default. A worker refuses to start if its broker
    /// says that it keeps messages for longer, and warns if it keeps them without a limit. A broker that says nothing is not checked. A
    /// message that was published longer ago, and has no record, becomes a dead letter
    /// (`too old`), because it may have been processed; also one that is delivered for the first time, to a new consumer or after a long outage.
    ///
    /// Deploy a longer retention to all workers before the broker keeps messages for longer.
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention, ..self }
    }

    /// Returns the store.
    pub fn store(&self) -> &K {
        &self.store
    }

    /// Returns the dead letters that match, in no order; also those that are replayed and not done yet.
    ///
    /// # Errors
    /// The store cannot be used.
    pub async fn dead(&self, filter: &LetterFilter) -> Result<Vec<Letter>, Error> {
        self.store.dead(filter).await.map_err(|fault| Error::database("could not read the dead letters", fault))
    }

    /// Resolves a dead letter. Returns `false` if there is none under this id: it is discarded, or its message was replayed and is processed.
    /// Replay, then publish; nothing is lost in between.
    ///
    /// # Errors
    /// The store cannot be used, and the letter may be resolved or not; repeat it.
    pub async fn resolve(&self, id: &Id, how: Resolve) -> Result<bool, Error> {
        let resolved = self.store.resolve(id, how, self.retention).await;
        resolved.map_err(|fault| Error::database("could not resolve a dead letter", fault))
    }
}

impl<K> fmt::Debug for KeyValue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue").field("name", &self.facts.name).field("retention", &self.retention).finish()
    }
}

impl<K: KeyValueStore> HasConnection<BestEffort> for KeyValue<K> {
    const BEST_EFFORT: bool = true;

    fn connection(lent: &mut Self::Lent) -> &mut BestEffort {
        &mut lent.best_effort
    }
}

#[allow(private_interfaces, reason = "as in the trait")]
impl<K: KeyValueStore> Engine for KeyValue<K> {
    type Lent = Lent<K::Writes>;

    const STORES: bool = false;

    fn about(&self) -> &StoreFacts {
        &self.facts
    }

    async fn probe(&self) -> Answer<()> {
        self.store.check(self.retention).await.map_err(|error| StoreError::Unavailable(error.into()))
    }

    fn register_handlers(
        &self,
        consumer: &str,
        handlers: &[Arc<dyn Registered<Self>>],
        settings: &Settings,
    ) -> impl Future<Output = Result<Registration<Self>, Error>> + Send {
        start::register(self, consumer, handlers, settings)
    }

    fn spawn<A: Acker>(
        pipeline: &Arc<Pipeline<Self>>,
        queues: Queues<A>,
        working: &mut JoinSet<()>,
        beside: &mut JoinSet<()>,
    ) {
        run::spawn(pipeline, &queues, working, beside);
    }

    async fn attempt(
        pipeline: &Pipeline<Self>,
        _: Option<&tokio::sync::Semaphore>,
        delivery: &mut Delivery,
        carried: &mut Carried,
    ) -> Attempted {
        // Pinned first, like other large futures: a wrapper would move the whole future.
        Attempted(pin!(pipeline.try_once(delivery, carried)).await)
    }

    fn leave(pipeline: &Pipeline<Self>, carried: &mut Carried) -> impl Future<Output = ()> + Send {
        pipeline.give_up(carried)
    }

    /// There is no inbox, and no order that could wait for one.
    async fn row_done(_: &Pipeline<Self>, _: &Identity) {}
}
