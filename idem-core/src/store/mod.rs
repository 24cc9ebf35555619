//! The interface to databases: claims, the inbox, and the transaction that a handler uses.
//!
//! | file | contents |
//! |---|---|
//! | `transactions`, `claims`, `inbox_rows`, `call_rows`, `outbox_rows`, `operator` | the six traits of a store |
//! | `handler_id`, `claim`, `row`, `stored`, `filter` | ids of handlers, claims, inbox rows, and which rows an operator means |
//! | `outbox_row` | the rows of the outbox, its lease, and what a relay reads |
//! | `call_answer`, `call_keys` | the answer of an external call, and the keys of calls |
//! | `unscheduled` | local messages that do not run |
//! | `limit`, `replayed`, `stats` | which due rows are taken, and the answers to an operator and to the gauges |
//! | `own_claim`, `names` | claims in transactions of the application's own, and numbers of names |
//! | `waiting` | handlers with inbox rows or claims |
//! | `envelope` | the encoding of a delivery's facts in a row |
//! | `error` | why one of idem's own statements failed |
//! | `connection_share` | the connections, which workers share |
//! | `migration`, `ledger`, `tables` | the SQL that creates the tables, the versions that may use them, and their columns |
//! | `postgres`, `sqlite` | the stores |

mod call_answer;
mod call_keys;
mod call_rows;
mod claim;
mod claims;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod clock;
mod connection_share;
pub mod envelope;
mod error;
mod filter;
mod handler_id;
mod inbox_rows;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod ledger;
mod limit;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod migration;
#[cfg(feature = "postgres")]
mod names;
mod operator;
mod outbox_row;
mod outbox_rows;
mod own_claim;
mod replayed;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod retention;
mod row;
mod stats;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod stored;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tables;
mod transactions;
mod unregistered;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod unscheduled;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod walk;

#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

pub use crate::outbox::Bell;
pub use call_answer::CallAnswer;
pub(crate) use call_keys::first_provider_key;
pub use call_keys::next_provider_key;
pub(crate) use call_rows::called_for;
pub use call_rows::{CallResult, CallRows, Caller, LeftCalls, RELEASED_AT_ONCE, Resolution, TakenCalls};
pub(crate) use claim::UNBEGUN;
pub use claim::{ClaimState, Claimed, CommitResult, ExistingClaim, Fate, Identity, RollbackResult, Ticket, TxnState};
pub use claims::Claims;
pub use connection_share::{ConnectionShare, ConnectionShares};
pub use error::StoreError;
pub(crate) use error::error_text;
pub use filter::Filter;
pub use handler_id::HandlerId;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use handler_id::{NUMBERS, number};
pub use inbox_rows::InboxRows;
pub use limit::{DueRows, LookBack, RowKind, TakeLimit};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use migration::Migration;
pub use operator::Operator;
pub use outbox_row::{
    DeadOutgoing, LOCAL_CONFLICT, LeaseAnswer, LeaseRequest, LocalMessage, OutboxFilter, OutboxFound, OutboxId,
    OutboxMark, OutboxRead, OutboxRow, OutboxSnapshot, OutboxStats, PublishFailure, RowRef, UnreadOutbox,
};
pub use outbox_rows::OutboxRows;
pub use own_claim::OwnClaim;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use own_claim::check_transaction;
pub use replayed::{Page, Replayed, ReplayedAll};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use retention::tell_of_retention;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use row::CRASHED;
pub use row::{CRASHED_AT_ONCE, CRASHED_LEASES, MAX_BREAKS, MAX_STARTS, NewRow, Row, RowResult};
pub use stats::{Pruned, Stats};
pub use transactions::Transactions;
pub(crate) use unregistered::as_ours;
pub use unregistered::{HandlerRows, History, Remedies, SEEN_RECENTLY};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use unscheduled::Unscheduled;

/// The interface to databases. Each method is one statement, or one short transaction. The pipeline and the inbox
/// decide, for all databases alike, when and in which order the methods are called.
///
/// All times are by the database's clock. A store is a handle: clones share their connections.
///
/// Cancel safety: dropping the future of any method leaves no open transaction behind. If the driver cannot guarantee
/// that, the store closes the connection.
///
/// ```
/// # use idem_core::{Error, Inbox, Store, store::{Filter, Page}};
/// /// How many dead letters there are, up to 1000, on either database.
/// async fn dead<S: Store>(store: &S, consumer: &str) -> Result<usize, Error> {
///     Ok(Inbox::new(store, consumer).list(&Filter::new(), Page::new(1000)).await?.len())
/// }
/// ```
pub trait Store: Transactions + Claims + InboxRows + CallRows + OutboxRows + Operator {}

impl<S: Transactions + Claims + InboxRows + CallRows + OutboxRows + Operator> Store for S {}

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
    /// Returns the connection of the transaction.
    fn connection(txn: &mut Self::Txn) -> &mut C;
}
