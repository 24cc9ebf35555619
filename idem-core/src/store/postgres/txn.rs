//! Transactions: begin, guard and commit, roll back.

use std::time::Duration;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres as Pg, Row};

use crate::BoxError;
use crate::store::{Committed, Fate, Fault, Ticket, Undone};

use super::answer::Failure;
use super::lanes::{LOCK_WAIT, Lane, Lanes, OWN};

/// An open transaction on a connection of its own. Dropping it closes the connection.
pub struct Txn {
    lane: Lane,
    // The transaction's number, once it has made a claim or started a row.
    xid: Option<String>,
    // Whether the database refuses a COMMIT that is not idem's.
    batch: bool,
    // How long a statement of our own waits for a lock, in milliseconds.
    lock_wait: u64,
    // A handler's.
    deadline: Duration,
    // Whether nothing was asked in it yet.
    fresh: bool,
}

impl std::fmt::Debug for Txn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Txn").field("xid", &self.xid).finish_non_exhaustive()
    }
}

/// How much longer than its deadline a handler may leave the session idle: the deadline is kept here, and the server's
/// limit is for when here is no more.
const MARGIN: Duration = Duration::from_secs(10);

/// The text by which the guard's own error is known from a handler's.
const ENDED: &str = "idem: the handler ended the transaction";

/// Raises an error unless the transaction is that of the number.
fn check(xid: &str) -> String {
    // The cast of a text that is no number is how plain SQL raises an error of one's own; `concat` is not immutable,
    // which keeps the planner from raising it beforehand (PostgreSQL manual, 4.2.14).
    format!(
        "SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM {xid} THEN 1
             ELSE pg_catalog.concat('{ENDED}')::int END"
    )
}

/// Prepared for the life of a connection, since the server would plan it anew for each message.
pub(super) fn guard() -> String {
    format!("PREPARE idem_guard (pg_catalog.xid8) AS {}", check("$1"))
}

/// Begins, with the limits of a handler of this deadline.
pub(super) async fn begin(lanes: &Lanes, deadline: Duration) -> Result<Txn, Fault> {
    let mut lane = lanes.lane().await?;
    let text = text(&lane, deadline);
    // On any failure the lane is dropped: a transaction may be open in it.
    lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await?;
    Ok(Txn::of(lane, deadline))
}

/// BEGIN, with the limits of a handler of this deadline.
pub(super) fn text(lane: &Lane, deadline: Duration) -> String {
    let statement = statement_timeout(lane, deadline);
    let lock = lock_wait(statement);
    let mut text = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {lock}; \
         SET LOCAL statement_timeout = {statement}; SET LOCAL idle_in_transaction_session_timeout = {};",
        millis(deadline.saturating_add(MARGIN)),
    );
    if lane.is_pooled() {
        text += &lane.session().pooled();
    }
    if lane.is_durable() {
        text += &format!(" SET LOCAL synchronous_commit = {};", lane.session().synchronous_commit());
    }
    text
}

fn statement_timeout(lane: &Lane, deadline: Duration) -> u64 {
    match lane.session().statement_timeout {
        0 => millis(deadline),
        set => set.min(millis(deadline)),
    }
}

/// Shorter than the statement's, or a claim that is held up would look like a server that is too slow.
fn lock_wait(statement: u64) -> u64 {
    (statement / 2).clamp(1, LOCK_WAIT)
}

/// In whole milliseconds, from 1 (0 would be no limit) to the highest that the server takes.
fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX).clamp(1, i32::MAX as u64)
}

impl Txn {
    /// In this lane, where a transaction has begun.
    pub(super) fn of(lane: Lane, deadline: Duration) -> Self {
        let lock_wait = lock_wait(statement_timeout(&lane, deadline));
        Self { lane, xid: None, batch: false, lock_wait, deadline, fresh: true }
    }

    /// One of idem's own statements.
    pub(super) async fn ask(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<sqlx::postgres::PgRow>, Fault> {
        self.fresh = false;
        Ok(self.lane.bound(OWN, query).await?)
    }

    /// One that fails where another transaction has inserted the same key meanwhile. `None` then, in a transaction that
    /// has begun anew.
    pub(super) async fn ask_alone(
        &mut self,
        query: Query<'_, Pg, PgArguments>,
    ) -> Result<Option<Vec<sqlx::postgres::PgRow>>, Fault> {
        self.fresh = false;
        match self.lane.bound(OWN, query).await {
            Ok(rows) => Ok(Some(rows)),
            Err(failure) if failure.code() == Some("23505") => {
                let again = format!("ROLLBACK; {}", text(&self.lane, self.deadline));
                self.lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(again))).await?;
                Ok(None)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// Whether it has just begun.
    pub(super) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The session's own lock timeout, which the handler is to have.
    pub(super) fn lock_timeout(&self) -> String {
        self.lane.session().lock_timeout.clone()
    }

    /// How long a statement of our own waits for a lock, in milliseconds.
    pub(super) fn lock_wait(&self) -> u64 {
        self.lock_wait
    }

    /// Remembers the transaction's number, which the guard compares.
    pub(super) fn guard(&mut self, xid: String) {
        self.xid = Some(xid);
    }

    /// Remembers that one of the claims carries the transaction's number, so that COMMIT needs leave.
    pub(super) fn guard_batch(&mut self) {
        self.batch = true;
    }

    /// What it is known by to other connections.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.xid.clone().map(Ticket)
    }

    /// The connection, for a handler.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.fresh = false;
        self.lane.connection()
    }
}

/// Guard and COMMIT in one string: if the guard fails, the COMMIT is not run.
pub(super) async fn commit(mut txn: Txn) -> Committed {
    if !txn.lane.is_sound() {
        return Committed::Unknown("a statement of this transaction was not answered".into());
    }
    if let Err(lost) = txn.lane.flush().await {
        return Committed::Unknown(lost.into_error());
    }
    let leave = match &txn.xid {
        Some(xid) if txn.batch => format!(" SELECT pg_catalog.set_config('idem.commit', '{xid}', true);"),
        _ => String::new(),
    };
    let text = match &txn.xid {
        // The number comes from the server and consists of digits.
        Some(xid) if txn.lane.is_pooled() => format!("{};{leave} COMMIT", check(&format!("'{xid}'::pg_catalog.xid8"))),
        Some(xid) => format!("EXECUTE idem_guard('{xid}');{leave} COMMIT"),
        // An aborted transaction answers COMMIT with ROLLBACK and no error; any statement before it raises one.
        None => "SELECT 1; COMMIT".to_owned(),
    };
    let failure = match txn.lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await {
        Ok(_) => {
            txn.lane.put_back();
            return Committed::Done;
        }
        Err(Failure::Lost(error)) => return Committed::Unknown(error),
        Err(failure @ Failure::Refused(_)) => failure,
    };
    let ended =
        matches!(&failure, Failure::Refused(error) if error.code() == "22P02" && error.message().contains(ENDED));
    match failure.code().unwrap_or_default() {
        "22P02" if ended => fate(txn).await,
        "25P02" if txn.xid.is_none() => closed(txn, |_| Committed::Swallowed, failure).await,
        // It may be another transaction that was aborted, after the handler had committed ours.
        "25P02" => match fate(txn).await {
            Committed::RolledBack => Committed::Swallowed,
            answer => answer,
        },
        // 57014: the statement's time ran out. A server that was frozen for a while finds that so as soon as it goes on,
        // and nothing was written (PostgreSQL manual, 20.11.1).
        "40001" | "40P01" | "57014" => closed(txn, Committed::Retry, failure).await,
        // The handler ran DEALLOCATE ALL. Dropping the transaction closes the connection, which has lost its guard.
        "26000" => Committed::Refused(failure.into_error()),
        // 40003 is "statement completion unknown". Without room (class 53), or as a standby (25006), the server is not
        // in a state to be believed, and none of it is the message's fault.
        code if code == "40003" || code == "25006" || code.starts_with("53") => {
            Committed::Unknown(failure.into_error())
        }
        _ => closed(txn, Committed::Refused, failure).await,
    }
}

/// The answer to a COMMIT that was refused, with the transaction out of the way.
async fn closed(txn: Txn, answer: impl FnOnce(BoxError) -> Committed, failure: Failure) -> Committed {
    // Whether the lane survives is the lane's business: the refusal stands.
    let _ = rollback(txn).await;
    answer(failure.into_error())
}

/// Ends whatever is open, and asks what became of the transaction that made the claim.
async fn fate(mut txn: Txn) -> Committed {
    let xid = txn.xid.take().unwrap_or_default();
    // A handler that ran COMMIT may have begun another one.
    let text = format!("ROLLBACK; SELECT pg_catalog.pg_xact_status('{xid}'::pg_catalog.xid8)");
    let rows = match txn.lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await {
        Ok(rows) => rows,
        Err(failure) => return Committed::Unknown(failure.into_error()),
    };
    txn.lane.put_back();
    let status = rows.first().and_then(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
    match status.as_deref() {
        Some("aborted") => Committed::RolledBack,
        Some("committed") => Committed::CommittedEarly,
        // Prepared for two-phase commit, or too old to be known.
        other => {
            let state = other.unwrap_or("not known");
            Committed::Unknown(format!("the transaction was ended by its handler, and is {state}").into())
        }
    }
}

/// Rolls back. An answered ROLLBACK tells that the connection is alive.
pub(super) async fn rollback(mut txn: Txn) -> Result<Undone, Fault> {
    if !txn.lane.is_sound() {
        return Err(Fault::Outage("a statement of this transaction was not answered".into()));
    }
    txn.lane.flush().await?;
    if txn.xid.is_some() {
        return match fate(txn).await {
            Committed::CommittedEarly => Ok(Undone::CommittedEarly),
            Committed::Unknown(error) => Err(Fault::Outage(error)),
            _ => Ok(Undone::RolledBack),
        };
    }
    match txn.lane.ask(OWN, sqlx::raw_sql("ROLLBACK")).await {
        Ok(_) => {
            txn.lane.put_back();
            Ok(Undone::RolledBack)
        }
        // An answer all the same; the connection is closed, since its state is not what it should be.
        Err(Failure::Refused(_)) => Ok(Undone::RolledBack),
        Err(lost) => Err(lost.into()),
    }
}

/// What became of this transaction of another connection. One that still runs is ended: its client has gone, and it holds
/// the claim.
pub(super) async fn fate_of(lanes: &Lanes, ticket: &Ticket) -> Result<Fate, Fault> {
    let mut lane = lanes.lane().await?;
    let status = sqlx::query("SELECT pg_catalog.pg_xact_status($1::text::pg_catalog.xid8)").bind(&ticket.0);
    let rows = match lane.alone(status).await {
        Ok(rows) => rows,
        // 22023: in the future of this server, which took over from one that had more. It never happened here.
        Err(failure) if failure.code() == Some("22023") => return Ok(Fate::RolledBack),
        Err(failure) => return Err(failure.into()),
    };
    let status: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(0))?;
    let fate = match status.as_deref() {
        Some("committed") => Fate::Committed,
        Some("in progress") => Fate::Running,
        // Aborted; or too old to be known, and then the claim tells.
        _ => Fate::RolledBack,
    };
    if fate == Fate::Running {
        // By the transaction's number, so that it is no other one, whatever is between. Where the role may not, it is waited
        // for.
        let end = sqlx::query(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
             WHERE backend_xid = ($1::text::pg_catalog.xid8)::pg_catalog.xid AND pid <> pg_catalog.pg_backend_pid()",
        );
        if let Err(failure) = lane.alone(end.bind(&ticket.0)).await {
            tracing::debug!(error = failure.into_error(), "a transaction that was cut off could not be ended");
            return Ok(fate);
        }
    }
    lane.put_back();
    Ok(fate)
}
