//! The PostgreSQL store, for PostgreSQL 13 and newer.
//!
//! | file | what |
//! |---|---|
//! | `options` | how to reach the database |
//! | `check` | settings that would lose messages |
//! | `migrate` | idem's own tables |
//! | `lanes`, `room`, `session` | connections, how many there are, and what their sessions are like |
//! | `answer` | what the server's errors mean |
//! | `txn` | begin, guard and commit, roll back |
//! | `fate` | what became of a transaction that was cut off |
//! | `register` | handlers as small integers |
//! | `claim` | claims |
//! | `inbox`, `rows` | inbox rows |
//! | `many` | claims and inbox rows of several messages at once |
//! | `operator` | list, replay, discard |
//! | `ping` | a sign of life |
//! | `prune` | old claims go |
//! | `sql` | the statements with the schema's name in them |

mod answer;
mod check;
mod claim;
mod clean;
mod commit;
mod fate;
mod guard;
mod inbox;
mod lanes;
mod many;
mod migrate;
mod operator;
mod options;
mod ping;
#[cfg(test)]
mod plans;
mod prune;
mod register;
mod room;
mod rows;
mod session;
mod sql;
mod txn;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres as Pg};
use uuid::Uuid;

use crate::{Error, Key};

use self::answer::About;

use super::{
    Claimed, Committed, Cures, Fate, Fault, Filter, HandlerId, Identity, Kind, Lends, Level, Limit, NewRow, Note, Page,
    Promise, Pruned, Replayed, Reservation, Row, Since, Standing, Store, Survey, Ticket, Undone, Waiting,
};

pub use options::PostgresOptions;
pub use txn::Txn;

/// The PostgreSQL store. Clones share their connections.
///
/// Its connections are its own, apart from any pool of the application: a handler that takes a second connection takes
/// it from the application's pool, and cannot starve the store.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    statements: sql::Statements,
    lanes: lanes::Lanes,
    name: String,
    schema: String,
    connections: usize,
    retention: Duration,
    reserved: Arc<AtomicUsize>,
}

impl Postgres {
    /// Connects with the default options; see [`PostgresOptions`].
    ///
    /// # Errors
    /// As [`PostgresOptions::connect`].
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Options, to be changed before [`connect`](PostgresOptions::connect). The URL looks like
    /// `postgres://user:password@host:5432/database`; sqlx's parameters (`?sslmode=verify-full`) may follow.
    pub fn options(url: &str) -> PostgresOptions {
        PostgresOptions::new(url)
    }

    fn sql(&self) -> &sql::Statements {
        &self.0.statements
    }

    fn lanes(&self) -> &lanes::Lanes {
        &self.0.lanes
    }

    fn schema(&self) -> &str {
        &self.0.schema
    }

    /// One statement that is committed by itself.
    async fn ask(&self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, Fault> {
        self.ask_about(About::Nothing, query).await
    }

    async fn ask_about(&self, about: About, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, Fault> {
        let mut lane = self.lanes().own().await?;
        let answer = lane.alone(query).await;
        lane.put_back();
        answer.map_err(|failure| failure.fault(about))
    }
}

/// Shows where the database is, without the password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { name, schema, connections, retention, .. } = &*self.0;
        f.debug_struct("Postgres")
            .field("target", name)
            .field("schema", schema)
            .field("connections", connections)
            .field("retention", retention)
            .finish_non_exhaustive()
    }
}

impl Lends<PgConnection> for Postgres {
    fn lend(txn: &mut Txn) -> &mut PgConnection {
        txn.connection()
    }
}

impl Store for Postgres {
    type Txn = Txn;

    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, Fault> {
        self.intern(consumer, names).await
    }

    async fn seen(&self, handlers: &[HandlerId]) -> Result<(), Fault> {
        self.note_seen(handlers).await
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<Waiting>, Fault> {
        self.handlers_waiting(consumer).await
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures {
        let schema = sql::quoted(self.schema());
        Cures::new(|table| format!("{schema}.{table}"), "now()", consumer, handler, new)
    }

    async fn has_history(&self, consumer: &str) -> Result<bool, Fault> {
        self.any_claim(consumer).await
    }

    fn reserve(&self, connections: usize) -> Result<Reservation, Error> {
        Reservation::of(&self.0.reserved, self.0.connections, connections).ok_or_else(|| {
            let taken = self.0.reserved.load(std::sync::atomic::Ordering::SeqCst);
            Error::Refused(format!(
                "the worker needs {connections} connections at once, and the store has {} of which {taken} are set aside: \
                 give the store `.connections({})` or more, or the worker less `.in_flight(..)`",
                self.0.connections,
                taken.saturating_add(connections)
            ))
        })
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, Fault> {
        self.retentions(handlers).await
    }

    async fn ping(&self) -> Result<(), Fault> {
        ping::ping(self).await
    }

    async fn begin(&self, deadline: Duration) -> Result<Txn, Fault> {
        txn::begin(self.lanes(), deadline).await
    }

    async fn between(&self, txn: &mut Txn) -> Result<bool, Fault> {
        txn::between(txn).await
    }

    async fn commit(&self, txn: Txn) -> Committed {
        commit::commit(txn).await
    }

    fn lost_race(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        answer::is_lost_race(error)
    }

    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        answer::is_deadlock(error)
    }

    async fn rollback(&self, txn: Txn) -> Result<Undone, Fault> {
        commit::rollback(txn).await
    }

    fn ticket(&self, txn: &Txn) -> Option<Ticket> {
        txn.ticket()
    }

    async fn fate(&self, ticket: &Ticket) -> Result<Fate, Fault> {
        self.fate_of(ticket).await
    }

    async fn claim(&self, txn: &mut Txn, identity: &Identity, promise: Promise) -> Result<Claimed, Fault> {
        self.make_claim(txn, identity, promise).await
    }

    async fn begin_with_claim(
        &self,
        deadline: Duration,
        identity: &Identity,
        promise: Promise,
    ) -> Result<(Txn, Claimed), Fault> {
        self.begin_claimed(deadline, identity, promise).await
    }

    async fn standing(&self, txn: &mut Txn, handler: HandlerId, key: &Key) -> Result<Option<Standing>, Fault> {
        self.read_claim(txn, handler, key).await
    }

    async fn claim_many(&self, txn: &mut Txn, ids: &[&Identity], promise: Promise) -> Result<Vec<Claimed>, Fault> {
        self.make_claims(txn, ids, promise).await
    }

    async fn standing_many(&self, txn: &mut Txn, ids: &[&Identity]) -> Result<Vec<Option<Standing>>, Fault> {
        self.read_claims(txn, ids, &self.sql().standing_many).await
    }

    async fn known(&self, txn: &mut Txn, ids: &[&Identity]) -> Result<Vec<Option<Standing>>, Fault> {
        self.read_claims(txn, ids, &self.sql().known).await
    }

    async fn reopen(&self, txn: &mut Txn, handler: HandlerId, key: &Key) -> Result<(), Fault> {
        self.reopen_claim(txn, handler, key).await
    }

    async fn insert(&self, txn: &mut Txn, row: &NewRow<'_>) -> Result<(), Fault> {
        self.insert_row(txn, row).await
    }

    async fn insert_many(&self, txn: &mut Txn, rows: &[NewRow<'_>]) -> Result<(), Fault> {
        self.insert_rows(txn, rows).await
    }

    async fn sight(&self, txn: &mut Txn, identity: &Identity) -> Result<(), Fault> {
        self.sight_row(txn, identity).await
    }

    async fn sight_many(&self, txn: &mut Txn, ids: &[&Identity]) -> Result<(), Fault> {
        self.sight_rows(txn, ids).await
    }

    async fn start(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        self.start_row(txn, row).await
    }

    async fn start_many(&self, txn: &mut Txn, rows: &[&Row]) -> Result<Vec<bool>, Fault> {
        self.start_rows(txn, rows).await
    }

    async fn remove(&self, txn: &mut Txn, row: &Row) -> Result<bool, Fault> {
        self.remove_row(txn, row).await
    }

    async fn survey(&self, handlers: &[HandlerId], lease: Duration) -> Result<Survey, Fault> {
        self.look(handlers, lease, Since::default()).await
    }

    async fn survey_since(&self, handlers: &[HandlerId], lease: Duration, since: Since) -> Result<Survey, Fault> {
        self.look(handlers, lease, since).await
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: Kind,
        limit: Limit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, Fault> {
        self.take_rows(handlers, kind, limit, token, lease).await
    }

    async fn count_start(&self, row: &Row, lease: Duration) -> Result<bool, Fault> {
        self.count_row_start(row, lease).await
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), Fault> {
        self.extend_rows(token, ids, lease).await
    }

    async fn taken(&self, token: Uuid) -> Result<Vec<Row>, Fault> {
        self.taken_rows(token).await
    }

    async fn note(&self, row: &Row, note: &Note) -> Result<bool, Fault> {
        self.note_row(row, note).await
    }

    async fn is_parked(&self, identity: &Identity) -> Result<bool, Fault> {
        self.has_parked(identity).await
    }

    async fn make_due(&self, identity: &Identity) -> Result<(), Fault> {
        self.make_row_due(identity).await
    }

    async fn unstart(&self, row: &Row) -> Result<(), Fault> {
        self.take_back_start(row).await
    }

    async fn judge(&self, handlers: &[HandlerId], lease: Duration) -> Result<u64, Fault> {
        self.judge_rows(handlers, lease).await
    }

    async fn level(&self, handlers: &[HandlerId]) -> Result<Level, Fault> {
        self.fill(handlers).await
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, Fault> {
        self.list_rows(consumer, filter, page).await
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, Fault> {
        self.replay_row(consumer, id, force).await
    }

    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, Fault> {
        self.replay_row_as(consumer, id, key).await
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, Fault> {
        self.discard_row(consumer, id).await
    }

    async fn prune(&self) -> Result<Pruned, Fault> {
        self.prune_claims().await
    }
}
