//! The SQLite store.
//!
//! | file | what |
//! |---|---|
//! | `options` | how a store is opened |
//! | `migrate` | the tables |
//! | `lane` | the one writer of a file, and the queue for it |
//! | `watch` | what a connection tells of its transactions |
//! | `txn` | begin, guard, commit, rollback |
//! | `claim` | claims |
//! | `inbox` | inbox rows |
//! | `operator` | level, list, replay, discard |
//! | `prune` | removing old claims |
//! | `register` | handlers, and signs of life |
//! | `sql`, `answer` | texts, values, errors |

mod answer;
mod claim;
mod inbox;
mod lane;
mod migrate;
mod operator;
mod options;
mod prune;
mod register;
mod sql;
mod txn;
mod watch;

#[cfg(test)]
mod plans;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use uuid::Uuid;

use super::{
    Claimed, Committed, Cures, Fate, Fault, Filter, HandlerId, Identity, Kind, Lends, Level, Limit, NewRow, Note, Page,
    Promise, Pruned, Replayed, Reservation, Row, Standing, Store, Survey, Ticket, Undone, Waiting,
};
use crate::{Error, Key};

pub use options::SqliteOptions;
pub use txn::Txn;

/// The SQLite store: claims and inbox in a database file, beside the tables that handlers write to.
///
/// SQLite has one writer at a time. All handles of a process to one file, whatever their prefix, share one writing
/// connection and take turns in the order in which they came; processes wait for each other for at most 5 seconds, and
/// what they could not get is [`Fault::Busy`]. A transaction is the writer from `begin` until it ends, so handlers run
/// one after the other. Reading does not wait (the file is in WAL mode).
///
/// What a handler should know: a failed statement does not abort its transaction, unlike PostgreSQL, so that a handler
/// that swallows an error and returns `Ok` is committed with what did work. A statement that rolls back as it fails
/// (`INSERT OR ROLLBACK`, a full disk) ends the transaction: the message then counts as rolled back by its handler, and
/// what the handler runs after that fails, so that none of it stands. Foreign keys are enforced. The connection is used
/// again, so that temporary tables, attached databases and pragmas of one handler meet the next one.
///
/// Clones share their connections.
#[derive(Clone)]
pub struct Sqlite {
    file: Arc<lane::File>,
    prefix: Arc<sql::Prefix>,
    retention: Duration,
    reserved: Arc<AtomicUsize>,
}

impl Sqlite {
    /// Opens the database file of this URL (`sqlite:orders.db`) or path with the default options, and makes it if it is
    /// not there. See [`SqliteOptions::connect`].
    ///
    /// # Errors
    /// As [`SqliteOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Options for the database file of this URL (`sqlite:orders.db`) or path.
    pub fn options(url: &str) -> SqliteOptions {
        SqliteOptions::new(url)
    }

    /// Runs one statement that changes something and commits by itself; answers how many rows it changed.
    async fn change(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, Fault> {
        let mut lane = self.file.lane().await?;
        let done = query.execute(lane.connection()).await.map_err(|error| self.file.fault(error))?;
        lane.give_back();
        Ok(done.rows_affected())
    }

    /// The same, about one message.
    async fn change_of_message(
        &self,
        query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
    ) -> Result<u64, Fault> {
        let mut lane = self.file.lane().await?;
        let done = query.execute(lane.connection()).await.map_err(|error| self.file.fault_of_message(error))?;
        lane.give_back();
        Ok(done.rows_affected())
    }

    /// Begins a transaction of idem's own, in which no handler runs.
    async fn transaction(&self) -> Result<Txn, Fault> {
        txn::begin(self, Duration::MAX).await
    }

    /// Ends a transaction of idem's own.
    async fn finish(&self, txn: Txn, commit: bool) -> Result<(), Fault> {
        if !commit {
            return txn::rollback(self, txn).await.map(drop);
        }
        match txn::commit(self, txn).await {
            Committed::Done => Ok(()),
            Committed::Retry(_) => Err(Fault::Busy),
            Committed::Unknown(fault) => Err(fault),
            Committed::Refused(error) => Err(Fault::Outage(error)),
            // No handler had it in hand.
            Committed::Swallowed | Committed::RolledBack | Committed::CommittedEarly | Committed::CommitRefused => {
                Err(Fault::Busy)
            }
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite")
            .field("file", &self.file.path())
            .field("prefix", &self.prefix.as_str())
            .field("retention", &self.retention)
            .finish_non_exhaustive()
    }
}

impl Lends<SqliteConnection> for Sqlite {
    fn lend(txn: &mut Txn) -> &mut SqliteConnection {
        txn.connection()
    }
}

impl Store for Sqlite {
    type Txn = Txn;

    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, Fault> {
        register::register(self, consumer, names).await
    }

    async fn seen(&self, handlers: &[HandlerId]) -> Result<(), Fault> {
        register::seen(self, handlers).await
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<Waiting>, Fault> {
        register::waiting(self, consumer).await
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures {
        register::cures(self, consumer, handler, new)
    }

    async fn has_history(&self, consumer: &str) -> Result<bool, Fault> {
        register::has_history(self, consumer).await
    }

    /// Any number: whoever wants the writer waits for its turn.
    fn reserve(&self, connections: usize) -> Result<Reservation, Error> {
        let refused = || Error::Refused(format!("{connections} connections at once are more than can be counted"));
        Reservation::of(&self.reserved, usize::MAX, connections).ok_or_else(refused)
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, Fault> {
        register::retention(self, handlers).await
    }

    async fn ping(&self) -> Result<(), Fault> {
        register::ping(self).await
    }

    async fn begin(&self, deadline: Duration) -> Result<Txn, Fault> {
        txn::begin(self, deadline).await
    }

    async fn commit(&self, txn: Txn) -> Committed {
        txn::commit(self, txn).await
    }

    async fn rollback(&self, txn: Txn) -> Result<Undone, Fault> {
        txn::rollback(self, txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.commit_was_refused().then(Ticket::default)
    }

    async fn fate(&self, _: &Ticket) -> Result<Fate, Fault> {
        Ok(Fate::CommitRefused)
    }

    async fn claim(&self, txn: &mut Txn, identity: &Identity, promise: Promise) -> Result<Claimed, Fault> {
        claim::claim(self, txn, identity, promise).await
    }

    async fn claim_many(&self, txn: &mut Txn, ids: &[&Identity], promise: Promise) -> Result<Vec<Claimed>, Fault> {
        claim::claim_many(self, txn, ids, promise).await
    }

    async fn standing(&self, txn: &mut Txn, handler: HandlerId, key: &Key) -> Result<Option<Standing>, Fault> {
        claim::standing(self, txn, handler, key).await
    }

    async fn reopen(&self, txn: &mut Txn, handler: HandlerId, key: &Key) -> Result<(), Fault> {
        claim::reopen(self, txn, handler, key).await
    }

    async fn insert(&self, txn: &mut Txn, row: &NewRow<'_>) -> Result<(), Fault> {
        inbox::insert(self, txn, row).await
    }

    async fn sight(&self, txn: &mut Txn, identity: &Identity) -> Result<(), Fault> {
        inbox::sight(self, txn, identity).await
    }

    async fn start(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        inbox::start(self, txn, row).await
    }

    async fn remove(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        inbox::remove(self, txn, row).await
    }

    async fn survey(&self, handlers: &[HandlerId], lease: Duration) -> Result<Survey, Fault> {
        inbox::survey(self, handlers, lease).await
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: Kind,
        limit: Limit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, Fault> {
        inbox::take(self, handlers, kind, limit, token, lease).await
    }

    async fn count_start(&self, row: &Row, lease: Duration) -> Result<bool, Fault> {
        inbox::count_start(self, row, lease).await
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), Fault> {
        inbox::extend(self, token, ids, lease).await
    }

    async fn taken(&self, token: Uuid) -> Result<Vec<Row>, Fault> {
        inbox::taken(self, token).await
    }

    async fn note(&self, row: &Row, note: &Note) -> Result<bool, Fault> {
        inbox::note(self, row, note).await
    }

    async fn is_parked(&self, identity: &Identity) -> Result<bool, Fault> {
        inbox::is_parked(self, identity).await
    }

    async fn make_due(&self, identity: &Identity) -> Result<(), Fault> {
        inbox::make_due(self, identity).await
    }

    async fn unstart(&self, row: &Row) -> Result<(), Fault> {
        inbox::unstart(self, row).await
    }

    async fn judge(&self, handlers: &[HandlerId], lease: Duration) -> Result<u64, Fault> {
        inbox::judge(self, handlers, lease).await
    }

    async fn level(&self, handlers: &[HandlerId]) -> Result<Level, Fault> {
        operator::level(self, handlers).await
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, Fault> {
        operator::list(self, consumer, filter, page).await
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, Fault> {
        operator::replay(self, consumer, id, force).await
    }

    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, Fault> {
        operator::replay_as(self, consumer, id, key).await
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, Fault> {
        operator::discard(self, consumer, id).await
    }

    async fn prune(&self) -> Result<Pruned, Fault> {
        prune::prune(self).await
    }
}
