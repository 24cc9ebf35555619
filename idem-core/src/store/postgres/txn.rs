//! Transactions: begin, guard and commit, roll back.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres as Pg, Row};

use crate::store::{Committed, Fault, HandlerId, Ticket, Undone};
use crate::{BoxError, Key};

use super::answer::{About, Failure};
use super::lanes::{Answer, LOCK_WAIT, Lane, Lanes, OWN};
use super::session::Session;

/// An open transaction on a connection of its own. Dropping it closes the connection.
pub struct Txn {
    lane: Lane,
    // The transaction's number, once it has made a claim or started a row.
    xid: Option<String>,
    // One of those claims.
    claim: Option<(HandlerId, Key)>,
    // Whether the database refuses a COMMIT that is not idem's.
    batch: bool,
    // How long a statement of our own waits for a lock, in milliseconds.
    lock_wait: u64,
    // A handler's.
    deadline: Duration,
    // Whether nothing was asked in it yet.
    fresh: bool,
    // Whether a handler has had the connection.
    lent: bool,
    // Whether several handlers have.
    shared: bool,
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

/// The text by which it is known that a handler has left settings behind for those that share its transaction.
const CHANGED: &str = "idem: a handler changed the role or a setting, or left a temporary table, for those behind it";

/// Raises an error unless the transaction is that of the number, and the condition holds where there is one. It sets the
/// level of durability again, which the handler may have set for its transaction.
fn check(xid: &str, same: Option<&str>, durable: Option<&str>) -> String {
    // The cast of a text that is no number is how plain SQL raises an error of one's own; `concat` is not immutable,
    // which keeps the planner from raising it beforehand (PostgreSQL manual, 4.2.14).
    let mut check = format!(
        "SELECT CASE WHEN pg_catalog.pg_current_xact_id_if_assigned() IS DISTINCT FROM {xid}
             THEN pg_catalog.concat('{ENDED}')::int "
    );
    if let Some(same) = same {
        check += &format!("WHEN NOT ({same}) THEN pg_catalog.concat('{CHANGED}')::int ");
    }
    check += "ELSE 1 END";
    if let Some(level) = durable {
        check += &format!(", pg_catalog.set_config('synchronous_commit', '{level}', true)");
    }
    check
}

/// Prepared for the life of a connection, since the server would plan them anew for each message.
pub(super) fn guards(session: &Session, durable: bool) -> String {
    let durable = durable.then(|| session.synchronous_commit());
    format!(
        "PREPARE idem_guard (pg_catalog.xid8) AS {}; PREPARE idem_guard_shared (pg_catalog.xid8) AS {}",
        check("$1", None, durable),
        check("$1", Some(session.same()), durable)
    )
}

/// Begins, with the limits of a handler of this deadline.
pub(super) async fn begin(lanes: &Lanes, deadline: Duration) -> Result<Txn, Fault> {
    let mut lane = lanes.lent().await?;
    let text = text(&lane, deadline);
    // On any failure the lane is dropped: a transaction may be open in it.
    lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await?;
    Ok(Txn::of(lane, deadline))
}

/// Everything that a handler can set, its role, its cursors, its temporary tables and what it knows of sequences.
const RESET: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; CLOSE ALL; DISCARD TEMP; DISCARD SEQUENCES";

/// Gets the transaction ready for the next one of several handlers. `false` where the one before it has ended the
/// transaction, or aborted it. Where nothing can be written outside of idem's transactions, that is left to the guard.
pub(super) async fn between(txn: &mut Txn) -> Result<bool, Fault> {
    txn.shared = true;
    let resets = txn.lane.resets();
    if txn.lane.session().read_only && !resets {
        return Ok(true);
    }
    let Some(xid) = &txn.xid else { return Ok(true) };
    let mut text = check(&format!("'{xid}'::pg_catalog.xid8"), None, None);
    if resets {
        // RESET ALL takes the limits of this transaction away as well.
        text += &format!("; {RESET}; {}", limits(&txn.lane, txn.deadline, &txn.lane.session().lock_timeout));
    }
    if !txn.lane.is_sound() {
        return Err(not_answered());
    }
    txn.lane.flush().await?;
    match txn.lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await {
        Ok(_) => Ok(true),
        Err(Failure::Refused(_)) => Ok(false),
        Err(lost) => Err(lost.into()),
    }
}

/// BEGIN, with the limits of a handler of this deadline.
///
/// READ WRITE, because outside of idem's transactions a lent session is read-only. Without what the session knows of sequences:
/// the last value would be another message's, or that of a row of the inbox.
pub(super) fn text(lane: &Lane, deadline: Duration) -> String {
    let lock = lock_wait(statement_timeout(lane, deadline));
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; DISCARD SEQUENCES; {}",
        limits(lane, deadline, &lock.to_string())
    )
}

/// What is set for a transaction.
fn limits(lane: &Lane, deadline: Duration, lock_timeout: &str) -> String {
    let mut text = format!(
        "SET LOCAL lock_timeout = {lock_timeout}; SET LOCAL statement_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = {};",
        statement_timeout(lane, deadline),
        millis(deadline.saturating_add(MARGIN)),
    );
    if lane.is_pooled() {
        text += &lane.session().pooled();
        if lane.is_durable() {
            text += &format!(" SET LOCAL synchronous_commit = {};", lane.session().synchronous_commit());
        }
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
        Self {
            lane,
            xid: None,
            claim: None,
            batch: false,
            lock_wait,
            deadline,
            fresh: true,
            lent: false,
            shared: false,
        }
    }

    /// One of idem's own statements, for the messages of this transaction.
    pub(super) async fn ask(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, Fault> {
        self.ask_about(About::Messages, query).await
    }

    /// One that writes payloads.
    pub(super) async fn ask_payloads(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, Fault> {
        self.ask_about(About::Payloads, query).await
    }

    async fn ask_about(&mut self, about: About, query: Query<'_, Pg, PgArguments>) -> Result<Vec<PgRow>, Fault> {
        self.fresh = false;
        self.lane.bound(OWN, query).await.map_err(|failure| failure.fault(about))
    }

    /// One that fails where another transaction has inserted the same key meanwhile. `None` then, in a transaction that
    /// has begun anew.
    pub(super) async fn ask_alone(&mut self, query: Query<'_, Pg, PgArguments>) -> Result<Option<Vec<PgRow>>, Fault> {
        self.fresh = false;
        match self.lane.bound(OWN, query).await {
            Ok(rows) => Ok(Some(rows)),
            Err(failure) if failure.code() == Some("23505") => {
                let again = format!("ROLLBACK; {}", text(&self.lane, self.deadline));
                self.lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(again))).await?;
                Ok(None)
            }
            Err(failure) => Err(failure.fault(About::Messages)),
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

    /// Remembers the transaction's number, which the guard compares, and one of the claims that it has made or dated.
    pub(super) fn guard(&mut self, xid: String, claim: Option<(HandlerId, Key)>) {
        self.xid = Some(xid);
        self.claim = claim;
    }

    /// Remembers that one of the claims carries the transaction's number, so that COMMIT needs leave.
    pub(super) fn guard_batch(&mut self) {
        self.batch = true;
    }

    /// What it is known by to other connections.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        let session = (!self.lane.is_pooled()).then(|| self.lane.session().process);
        Some(Ticket { number: self.xid.clone()?, claim: self.claim, session })
    }

    /// The connection, for a handler.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.fresh = false;
        self.lent = true;
        self.lane.connection()
    }

    /// What follows the end of the transaction in the same string, so that nothing that a handler did to the session reaches
    /// the next message. A pooler's session may be somebody else's by then.
    fn cleaning(&self) -> &'static str {
        if self.is_cleaned() { "; RESET ALL; EXECUTE idem_clean" } else { "" }
    }

    fn is_cleaned(&self) -> bool {
        self.lent && !self.lane.is_pooled()
    }

    /// Makes the connection idle, after the answer to its [`cleaning`](Self::cleaning). Where anything is left that has to
    /// be undone by name, that costs one more round trip.
    async fn put_back(mut self, answer: &[PgRow]) {
        if self.is_cleaned() {
            match answer.last().and_then(|row| row.try_get(1).ok()) {
                Some(true) => {}
                Some(false) if self.lane.ask(OWN, sqlx::raw_sql(UNDO)).await.is_ok() => {}
                _ => return,
            }
        }
        self.lane.put_back();
    }
}

/// What `RESET ALL` leaves.
const UNDO: &str = "RESET SESSION AUTHORIZATION; RESET ROLE; RESET ALL; UNLISTEN *; CLOSE ALL; DISCARD TEMP";

/// Guard and COMMIT in one string: if the guard fails, the COMMIT is not run.
pub(super) async fn commit(mut txn: Txn) -> Committed {
    if !txn.lane.is_sound() {
        return Committed::Unknown(not_answered());
    }
    if let Err(lost) = txn.lane.flush().await {
        return Committed::Unknown(lost.into());
    }
    let durable = txn.lane.is_durable().then(|| txn.lane.session().synchronous_commit());
    let same = (txn.shared && !txn.lane.resets()).then(|| txn.lane.session().same());
    // One more statement, which gives leave to the COMMIT behind it.
    let (leave, needed) = match &txn.xid {
        Some(xid) if txn.batch => (format!("; SELECT pg_catalog.set_config('idem.commit', '{xid}', true)"), 3),
        _ => (String::new(), 2),
    };
    let text = match &txn.xid {
        // The number comes from the server and consists of digits.
        Some(xid) if txn.lane.is_pooled() => {
            format!("{}{leave}; COMMIT", check(&format!("'{xid}'::pg_catalog.xid8"), same, durable))
        }
        Some(xid) if same.is_some() => format!("EXECUTE idem_guard_shared('{xid}'){leave}; COMMIT"),
        Some(xid) => format!("EXECUTE idem_guard('{xid}'){leave}; COMMIT"),
        // An aborted transaction answers COMMIT with ROLLBACK and no error; any statement before it raises one.
        None => "SELECT 1; COMMIT".to_owned(),
    };
    let text = text + txn.cleaning();
    let mut answer = txn.lane.run(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await;
    if answer.failure.is_none() && answer.finished < needed {
        // It is the answer to a COPY of the handler. Ours is still to come, and COMMIT may be refused.
        answer = txn.lane.read_on(OWN).await;
    }
    let Answer { finished, rows, failure } = answer;
    let failure = match failure {
        None if finished < needed => {
            return Committed::Unknown(Fault::Lost("the handler left an answer unread".into()));
        }
        None => {
            txn.put_back(&rows).await;
            return Committed::Done;
        }
        // Guard and COMMIT were answered; what failed is the cleaning behind them. The connection is closed.
        Some(_) if finished >= needed => return Committed::Done,
        Some(Failure::Lost(error)) => return Committed::Unknown(Fault::Lost(error)),
        Some(failure @ Failure::Refused(_)) => failure,
    };
    let says = |text: &str| matches!(&failure, Failure::Refused(error) if error.code() == "22P02" && error.message().contains(text));
    let ended = says(ENDED);
    if says(CHANGED) {
        TELL.call_once(|| tracing::warn!(
            "a handler of a batch left a temporary table, or changed its role, search_path, time zone or the like, for \
             those behind it: such batches are split until each message is alone; say `.reset_between_messages()`, or undo it in the handler"
        ));
    }
    match failure.code().unwrap_or_default() {
        "22P02" if ended => match fate(txn).await {
            Fate::Undone | Fate::Ended => Committed::RolledBack,
            Fate::Committed => Committed::CommittedEarly,
            Fate::Unknown(error) => Committed::Unknown(Fault::Lost(error)),
        },
        "25P02" if txn.xid.is_none() => closed(txn, finished, |_| Committed::Swallowed, failure).await,
        // It may be another transaction that was aborted, after the handler had ended ours.
        "25P02" => match fate(txn).await {
            Fate::Undone => Committed::Swallowed,
            Fate::Ended => Committed::RolledBack,
            Fate::Committed => Committed::CommittedEarly,
            Fate::Unknown(error) => Committed::Unknown(Fault::Lost(error)),
        },
        // 57014: the statement's time ran out. A server that was frozen for a while finds that so as soon as it goes on,
        // and nothing was written (PostgreSQL manual, 20.11.1).
        "40001" | "40P01" | "57014" => closed(txn, finished, Committed::Retry, failure).await,
        // The handler ran DEALLOCATE ALL. The connection has lost its guard, and is closed.
        "26000" => {
            let text = "the handler ran DEALLOCATE ALL, which removes idem's own statements as well";
            closed(txn, finished, |_| Committed::Refused(text.into()), failure).await
        }
        // 40003 is "statement completion unknown". Without room (class 53), or as a standby (25006), the server is not
        // in a state to be believed, and none of it is the message's fault.
        code if code == "40003" || code == "25006" || code.starts_with("53") => Committed::Unknown(failure.into()),
        _ => closed(txn, finished, Committed::Refused, failure).await,
    }
}

fn not_answered() -> Fault {
    Fault::Lost("a statement of this transaction was not answered".into())
}

/// That a batch was split for its settings is told once.
static TELL: std::sync::Once = std::sync::Once::new();

/// The answer to a guard or COMMIT that was refused, with the transaction out of the way. Where the guard itself has given
/// no answer, the handler may have ended the transaction.
async fn closed(txn: Txn, finished: usize, answer: impl FnOnce(BoxError) -> Committed, failure: Failure) -> Committed {
    match rollback(txn).await {
        Ok(Undone::CommittedEarly) => Committed::CommittedEarly,
        Ok(Undone::Ended) if finished == 0 => Committed::RolledBack,
        // Whether the lane survives is the lane's business: the refusal stands.
        _ => answer(failure.into_error()),
    }
}

/// What became of the transaction that made the claim.
enum Fate {
    /// It was open, and is rolled back.
    Undone,
    /// The handler had ended it by ROLLBACK.
    Ended,
    /// The handler had ended it by COMMIT.
    Committed,
    Unknown(BoxError),
}

/// Ends whatever is open, and asks what became of the transaction that made the claim.
async fn fate(mut txn: Txn) -> Fate {
    let xid = txn.xid.take().unwrap_or_default();
    let ours = format!("pg_catalog.pg_current_xact_id_if_assigned() IS NOT DISTINCT FROM '{xid}'::pg_catalog.xid8");
    let end = format!("ROLLBACK; SELECT pg_catalog.pg_xact_status('{xid}'::pg_catalog.xid8){}", txn.cleaning());
    let mut answer = txn.lane.run(OWN, sqlx::raw_sql(AssertSqlSafe(format!("SELECT {ours}; {end}")))).await;
    if answer.failure.as_ref().and_then(Failure::code) == Some("25P02") {
        // A transaction that was aborted by an error tells nothing of itself; it passes for ours.
        txn.lane.forgive();
        answer = txn.lane.run(OWN, sqlx::raw_sql(AssertSqlSafe(format!("ROLLBACK; SELECT true; {end}")))).await;
        answer.finished = answer.finished.saturating_sub(1);
    }
    let Answer { finished, rows, failure } = answer;
    // What fails behind these three is the cleaning, and the connection is closed.
    if let Some(failure) = failure.filter(|_| finished < 3) {
        return Fate::Unknown(failure.into_error());
    }
    let ended = !rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false);
    let status = rows.get(1).and_then(|row| row.try_get::<Option<String>, _>(0).ok().flatten());
    match status.as_deref() {
        // Nobody knows what a handler that ends transactions does to its session: it is closed.
        Some("aborted") if ended => Fate::Ended,
        Some("aborted") => {
            txn.put_back(&rows).await;
            Fate::Undone
        }
        Some("committed") => Fate::Committed,
        // Prepared for two-phase commit, or too old to be known.
        other => {
            let state = other.unwrap_or("not known");
            Fate::Unknown(format!("the transaction was ended by its handler, and is {state}").into())
        }
    }
}

/// Rolls back. An answered ROLLBACK tells that the connection is alive.
pub(super) async fn rollback(mut txn: Txn) -> Result<Undone, Fault> {
    if !txn.lane.is_sound() {
        return Err(not_answered());
    }
    txn.lane.flush().await?;
    if txn.xid.is_some() {
        return match fate(txn).await {
            Fate::Undone => Ok(Undone::RolledBack),
            Fate::Ended => Ok(Undone::Ended),
            Fate::Committed => Ok(Undone::CommittedEarly),
            Fate::Unknown(error) => Err(Fault::Lost(error)),
        };
    }
    let text = format!("ROLLBACK{}", txn.cleaning());
    match txn.lane.ask(OWN, sqlx::raw_sql(AssertSqlSafe(text))).await {
        Ok(rows) => {
            txn.put_back(&rows).await;
            Ok(Undone::RolledBack)
        }
        // An answer all the same; the connection is closed, since its state is not what it should be.
        Err(Failure::Refused(_)) => Ok(Undone::RolledBack),
        Err(lost) => Err(lost.into()),
    }
}
