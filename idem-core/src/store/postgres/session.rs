//! A connection's session: its initial settings, and those that idem needs.

use std::sync::Arc;

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::answer::Failure;
use super::begin::Isolation;
use super::limits::{LOCK_WAIT, OWN, Use};
use super::state::{MEANING, RESET, SessionState};

/// The session before idem changed it, as determined by role, database and server.
#[derive(Clone)]
pub(super) struct Session {
    /// The server's version, such as 150018.
    pub(super) version: i32,
    /// With its unit; restored for the handler after the claim.
    pub(super) lock_timeout: String,
    /// In milliseconds; 0 means no limit.
    pub(super) statement_timeout: u64,
    /// The level of durability.
    pub(super) synchronous_commit: String,
    /// The level of a transaction that names none.
    pub(super) isolation: Isolation,
    /// Whether a transaction that idem did not begin is read-only.
    pub(super) read_only: bool,
    /// The role whose privileges the session has.
    pub(super) role: String,
    /// It, and what determines the meaning of statements.
    pub(super) state: Arc<SessionState>,
    /// Whether the statements are prepared that COMMIT takes with it, which write staged messages.
    pub(super) writes: bool,
    /// Whether the server can watch its connection while a statement runs. Not every operating system supports this
    /// (PostgreSQL manual, 20.3.2); the statement timeout applies anyway.
    watches: bool,
}

/// Without this, a process that is killed during a long statement would hold its claim until the statement ends.
const WATCH: &str = "client_connection_check_interval";

/// Whether the server compiles the expressions of a statement. Statements of idem's own are short, also those that the planner takes for
/// long ones, such as a count that its limit ends: compiling one took a second, and running it a tenth of that.
pub(super) const COMPILED: &str = "jit";

/// Shows that the server has received the settings with which a session starts.
pub(super) const STARTED: &str = "idem.started";

/// The settings with which a session starts. They are committed before its first transaction, so no ROLLBACK undoes
/// them, and `RESET ALL` returns to them. They come last, so that they override those of the URL and of a callback. `first`: the
/// first session of the store.
pub(super) fn started(target: PgConnectOptions, of: Use, first: Option<&Session>) -> PgConnectOptions {
    // A write after a handler has ended its transaction would be committed by itself, and again when the other messages
    // of its batch run again. So nothing can be written outside a transaction that idem began as READ WRITE.
    let read_only = if of == Use::Lent { "on" } else { "off" };
    let target = target.options([
        ("default_transaction_read_only", read_only),
        (STARTED, "on"),
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "20s"),
    ]);
    let target = if of == Use::Own { target.options([(COMPILED, "off")]) } else { target };
    let Some(first) = first else { return target };
    let target = if first.watches { target.options([(WATCH, "1s")]) } else { target };
    target.options([("synchronous_commit", first.synchronous_commit())])
}

impl Session {
    /// Reads a session. `resets` says whether each message ends with [`CLEAN`](super::state) in it: then only what that leaves
    /// counts. A pooler in session mode, or a trigger at the login, may have made other settings, which the first message would
    /// take away. Its limits count nevertheless, since each transaction sets them anew.
    pub(super) async fn of(conn: &mut PgConnection, resets: bool) -> Result<Self, Failure> {
        // The view pg_settings, which has the numbers without their units, made this statement take most of the time of a
        // login: each use of it formats all settings.
        let mut asked = "SELECT current_setting('lock_timeout'),
                    (1000 * extract(epoch FROM current_setting('statement_timeout')::interval))::bigint;"
            .to_owned();
        if resets {
            asked.extend([RESET, ";"]);
        }
        asked += "SELECT current_setting('server_version_num')::int, current_setting('synchronous_commit'),
                    current_setting('default_transaction_read_only')::bool,
                    current_user::text, session_user::text";
        for name in MEANING {
            asked += &format!(", current_setting('{name}')");
        }
        asked += ", current_setting('default_transaction_isolation')";
        let asked = sqlx::raw_sql(AssertSqlSafe(asked));
        let rows = conn.fetch_all(asked).await?;
        let [limits, row] = rows.as_slice() else { return Err(Failure::Lost("the login is not answered".into())) };
        let (read_only, role): (bool, String) = (row.try_get(2)?, row.try_get(3)?);
        let values = (5..5 + MEANING.len()).map(|place| row.try_get(place)).collect::<Result<_, _>>()?;
        let state = SessionState::new(row.try_get(4)?, &role, read_only, values);
        Ok(Self {
            version: row.try_get(0)?,
            lock_timeout: limits.try_get(0)?,
            statement_timeout: u64::try_from(limits.try_get::<i64, _>(1)?).unwrap_or(0),
            synchronous_commit: row.try_get(1)?,
            isolation: Isolation::of(row.try_get(5 + MEANING.len())?),
            read_only,
            role,
            state: Arc::new(state),
            writes: false,
            watches: false,
        })
    }

    /// Finds out what the server supports. A later login may get a pooler's session in which a handler has left something: the
    /// first one of its user tells what it should be.
    pub(super) async fn learn(&mut self, conn: &mut PgConnection, first: Option<Self>) -> Result<(), Failure> {
        let Some(first) = first else {
            // In a transaction, because idem must not change a pooler's session.
            let watch = sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; SET LOCAL {WATCH} = '1s'; ROLLBACK")));
            self.watches = match watch.execute(&mut *conn).await.map_err(Failure::from) {
                Ok(_) => true,
                Err(Failure::Refused(_)) => sqlx::raw_sql("ROLLBACK").execute(conn).await.map(|_| false)?,
                Err(lost) => return Err(lost),
            };
            return Ok(());
        };
        self.watches = first.watches;
        if first.state.user == self.state.user {
            self.state = first.state;
        }
        Ok(())
    }

    /// Applies idem's settings to the session, and prepares its statements: `writes` are those of staged messages.
    pub(super) async fn prepare(
        &mut self,
        conn: &mut PgConnection,
        of: Use,
        statements: &str,
        writes: &str,
    ) -> Result<(), Failure> {
        let settings = match of {
            // Each transaction sets its own limits.
            Use::Lent => format!(
                "{}; {}; {statements}",
                super::commit::guards(&self.state.same, self.synchronous_commit()),
                super::state::PREPARE
            ),
            Use::Own => self.own(),
        };
        sqlx::raw_sql(AssertSqlSafe(settings)).execute(&mut *conn).await?;
        if of == Use::Lent {
            let writes = format!("BEGIN; SET LOCAL lock_timeout = 100; {writes}; COMMIT");
            let prepared = sqlx::raw_sql(AssertSqlSafe(writes)).execute(&mut *conn).await.map_err(Failure::from);
            self.writes = match prepared {
                Ok(_) => true,
                // A table is missing or locked. That is no matter of handlers that stage nothing.
                Err(refused) if matches!(refused.code(), Some("42P01" | "55P03")) => {
                    sqlx::raw_sql("ROLLBACK").execute(conn).await?;
                    false
                }
                Err(failure) => return Err(failure),
            };
        }
        Ok(())
    }

    /// The settings of a session that no handler uses.
    fn own(&self) -> String {
        let mut settings = format!(
            "SET lock_timeout = {LOCK_WAIT}; SET statement_timeout = {}; SET default_transaction_isolation = 'read committed'; \
             SET synchronous_commit = {};",
            OWN.as_millis(),
            self.synchronous_commit()
        );
        if self.watches {
            settings += &format!(" SET {WATCH} = '1s';");
        }
        settings
    }

    /// Returns the statements that begin a transaction in a pooler's session, besides its limits. sqlx names the
    /// statements that a handler prepares; a statement that an earlier transaction left in the session would conflict
    /// with one of the same name.
    pub(super) fn pooled(&self) -> String {
        let watch = if self.watches { format!(" SET LOCAL {WATCH} = '1s';") } else { String::new() };
        format!(" DEALLOCATE ALL;{watch}{}", self.state.local)
    }

    /// The level for idem's transactions: the session's own level if that is stronger than idem needs.
    pub(super) fn synchronous_commit(&self) -> &'static str {
        if self.synchronous_commit == "remote_apply" { "remote_apply" } else { "on" }
    }
}
