//! The interface to databases: claims, the inbox, and the transaction that a handler uses.
//!
//! | file | contents |
//! |---|---|
//! | `transactions`, `inbox_rows`, `outbox_rows`, `consumers` | the four traits of a store |
//! | `facts` | what a store is, and what its clones share in a process |
//! | `claim`, `row` | ids of handlers, claims, inbox rows |
//! | `outbox_row` | the rows of the outbox, its lease, and what a relay reads |
//! | `calls`, `call_keys` | external calls: their results, answers and keys |
//! | `limit`, `replayed` | which due rows are fetched and for whom, and the answers to an operator and to the gauges |
//! | `operation`, `question` | which rows an operator changes and who that is, and the questions of operators |
//! | `known_handler` | the handlers that the tables know |
//! | `replies` | the replies to requests |
//! | `envelope` | the encoding of a delivery's facts in a row |
//! | `error` | why one of idem's own statements failed |
//! | `connection_share` | the connections, which workers share |
//! | `sql` | parts that the stores for SQL databases share |
//! | `postgres`, `sqlite` | the stores |

mod call_keys;
mod calls;
mod claim;
mod connection_share;
mod consumers;
pub mod envelope;
mod error;
mod facts;
mod inbox_rows;
mod known_handler;
mod limit;
mod operation;
mod outbox_row;
mod outbox_rows;
mod question;
mod replayed;
mod replies;
mod row;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sql;
mod transactions;

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use crate::outbox::Notifier;
pub use crate::worker::Roster;
pub use call_keys::next_provider_key;
pub(crate) use call_keys::{digest, first_provider_key};
pub(crate) use calls::called_for;
pub use calls::{CallAnswer, CallResult, LeftCalls, RELEASED_AT_ONCE, Resolution};
pub(crate) use claim::UNBEGUN;
pub use claim::{
    ClaimState, Claimed, CommitResult, ErrorClass, ExistingClaim, HandlerId, Identity, OwnClaim, TxnHandle, TxnOutcome,
    TxnState,
};
#[cfg(feature = "postgres")]
pub(crate) use connection_share::FOR_A_RELAY;
pub use connection_share::{ConnectionShare, ConnectionShares};
pub use consumers::Consumers;
pub use error::{Answer, StoreError};
pub use facts::StoreFacts;
pub use inbox_rows::InboxRows;
pub use known_handler::{HandlerMark, KnownHandler, Remedies, SEEN_RECENTLY};
pub use limit::{DueRows, FetchFor, FetchLimit, FetchedRows, LookBack, RowKind, Stats};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use operation::outgoing_action;
pub use operation::{By, Of};
pub use outbox_row::{
    DeadOutgoing, LOCAL_CONFLICT, LeaseAnswer, LeaseRequest, LocalMessage, OutboxFilter, OutboxFound, OutboxId,
    OutboxMark, OutboxRead, OutboxRow, OutboxSnapshot, OutboxStats, PublishFailure, RowRef, UnreadOutbox,
};
pub use outbox_rows::OutboxRows;
pub use question::{Question, Value};
pub use replayed::{Page, Replay, Replayed};
pub(crate) use replies::REQUEST;
pub use replies::{Replies, StoredReply};
pub use row::{CRASHED_AT_ONCE, CRASHED_LEASES, MAX_LOST_CONNECTIONS, MAX_STARTS, NewRow, Row, RowResult};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use sql::Migration;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use sql::{CRASHED, NUMBERS, check_transaction, checked, error_text, log_conflicts, number, stored};
pub use transactions::Transactions;

/// The interface to databases. Each method is one statement, or one short transaction. The pipeline and the inbox
/// decide, for all databases alike, when and in which order the methods are called.
///
/// All times are by the database's clock. A store is a handle: clones share their connections.
///
/// Cancel safety: dropping the future of any method leaves no open transaction behind. If the driver cannot guarantee
/// that, the store closes the connection.
///
/// ```
/// # use idem_core::{Error, Store, operator::{Filter, Operator, Page}};
/// /// How many dead letters there are, up to 1000, on either database.
/// async fn dead<S: Store>(store: &S, consumer: &str) -> Result<usize, Error> {
///     Ok(Operator::new(store).consumer(consumer).list(&Filter::new(), Page::new(1000)).await?.rows.len())
/// }
/// ```
pub trait Store: Transactions + InboxRows + OutboxRows + Consumers {}

impl<S: Transactions + InboxRows + OutboxRows + Consumers> Store for S {}

/// A store that can provide the connection type that a handler uses.
///
/// ```
/// # #[cfg(feature = "postgres")] mod example {
/// # use idem_core::{Handler, HasConnection, Source, Worker};
/// # use sqlx::PgConnection;
/// /// Takes `Postgres`, and a store of a test that wraps it.
/// fn billing<S, H>(store: S, orders: impl Source)
/// where
///     S: HasConnection<PgConnection>,
///     H: Handler<Connection = PgConnection, Params = (), Message: serde::de::DeserializeOwned>,
/// {
///     let worker = Worker::new("billing", store, orders).handler::<H>();
/// }
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "this handler takes `&mut {C}`, which the store `{Self}` does not have",
    note = "`Postgres` has `&mut sqlx::PgConnection` of sqlx 0.9, `Sqlite` has `&mut sqlx::SqliteConnection`"
)]
pub trait HasConnection<C>: Store {
    /// Returns the connection of the transaction. A nested transaction that a handler begins on it is a savepoint: a driver that
    /// counts transactions, as sqlx does, has to count that of idem.
    fn connection(txn: &mut Self::Txn) -> &mut C;
}
