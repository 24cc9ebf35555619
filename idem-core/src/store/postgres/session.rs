//! What a connection's session is like: as the server makes it, and as idem wants it.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Executor, PgConnection, Row};

use super::answer::Failure;
use super::limits::{LOCK_WAIT, OWN, Use};

/// What the session was like before idem touched it: role, database and server decide it.
#[derive(Clone)]
pub(super) struct Session {
    /// The server's version, as in 150018.
    pub(super) version: i32,
    /// In milliseconds, as a string; restored for the handler after the claim.
    pub(super) lock_timeout: String,
    /// In milliseconds; 0 is none.
    pub(super) statement_timeout: u64,
    /// The level of durability.
    pub(super) synchronous_commit: String,
    /// Whether a transaction that idem did not begin can write nothing.
    pub(super) read_only: bool,
    /// The process that serves it.
    pub(super) process: i32,
    /// The role whose rights the session has, and the one that it was opened for.
    role: String,
    user: String,
    /// A condition that holds as long as what decides over the meaning of statements is as it was when it was opened.
    same: String,
    /// Whether the server can watch its connection while a statement runs. Not every operating system can do this
    /// (PostgreSQL manual, 20.3.2); the statement timeout still holds.
    watches: bool,
}

/// A process that is killed during a long statement would hold its claim until the statement ends.
const WATCH: &str = "client_connection_check_interval";

/// What the first connection has learnt, for the start of those that follow.
#[derive(Clone, Copy)]
pub(super) struct Learnt {
    synchronous_commit: &'static str,
    watches: bool,
}

/// The settings with which a session starts. They are committed before its first transaction, so that no ROLLBACK undoes
/// them, and `RESET ALL` returns to them.
pub(super) fn started(target: PgConnectOptions, of: Use, durable: bool, learnt: Option<Learnt>) -> PgConnectOptions {
    // What a handler writes behind a transaction that it has ended would be committed by itself, and again when its
    // neighbours run again. So nothing can be written but in a transaction that idem has begun as READ WRITE.
    let read_only = if of == Use::Lent { "on" } else { "off" };
    let target = target.options([
        ("default_transaction_read_only", read_only),
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "20s"),
    ]);
    let Some(learnt) = learnt else { return target };
    let target = if learnt.watches { target.options([(WATCH, "1s")]) } else { target };
    if durable { target.options([("synchronous_commit", learnt.synchronous_commit)]) } else { target }
}

/// What decides over whose rows a statement finds, and what it means by them.
const MEANING: [&str; 6] =
    ["search_path", "row_security", "session_replication_role", "TimeZone", "DateStyle", "IntervalStyle"];

/// A temporary table hides a table of its name, and holds the rows of whoever comes first. A session that has never had one
/// is not looked at any further.
const NO_TEMPORARY_TABLES: &str = "(pg_catalog.pg_my_temp_schema() = 0 OR NOT EXISTS (
    SELECT FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema()))";

/// A text as a constant of SQL, whatever is in it and however backslashes are read.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

impl Session {
    pub(super) async fn of(conn: &mut PgConnection) -> Result<Self, Failure> {
        let mut asked = "SELECT current_setting('server_version_num')::int,
                    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'lock_timeout'),
                    (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'),
                    current_setting('synchronous_commit'),
                    current_setting('default_transaction_read_only')::bool,
                    current_user::text, session_user::text, pg_catalog.pg_backend_pid()"
            .to_owned();
        for name in MEANING {
            asked += &format!(", current_setting('{name}')");
        }
        let asked = sqlx::raw_sql(AssertSqlSafe(asked));
        let row = conn.fetch_one(asked).await?;
        let (role, user): (String, String) = (row.try_get(5)?, row.try_get(6)?);
        let mut same = format!(
            "current_user = {} AND session_user = {} AND {NO_TEMPORARY_TABLES}",
            literal(&role),
            literal(&user)
        );
        for (place, name) in MEANING.iter().enumerate() {
            let value: String = row.try_get(8 + place)?;
            same += &format!(" AND pg_catalog.current_setting('{name}') = {}", literal(&value));
        }
        Ok(Self {
            version: row.try_get(0)?,
            lock_timeout: row.try_get(1)?,
            statement_timeout: row.try_get::<String, _>(2)?.parse().unwrap_or(0),
            synchronous_commit: row.try_get(3)?,
            read_only: row.try_get(4)?,
            process: row.try_get(7)?,
            role,
            user,
            same,
            watches: false,
        })
    }

    /// Finds out what the server can do.
    pub(super) async fn learn(&mut self, conn: &mut PgConnection, learnt: Option<Learnt>) -> Result<Learnt, Failure> {
        self.watches = match learnt {
            Some(learnt) => learnt.watches,
            None if self.version >= 140_000 => {
                // In a transaction, because a pooler's session is not ours to set.
                let watch = sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; SET LOCAL {WATCH} = '1s'; ROLLBACK")));
                match watch.execute(&mut *conn).await.map_err(Failure::from) {
                    Ok(_) => true,
                    Err(Failure::Refused(_)) => sqlx::raw_sql("ROLLBACK").execute(conn).await.map(|_| false)?,
                    Err(lost) => return Err(lost),
                }
            }
            None => false,
        };
        Ok(Learnt { synchronous_commit: self.synchronous_commit(), watches: self.watches })
    }

    /// Makes the session idem's own.
    pub(super) async fn prepare(&self, conn: &mut PgConnection, of: Use, durable: bool) -> Result<(), Failure> {
        let settings = match of {
            // Each of its transactions has limits of its own.
            Use::Lent => format!(
                "{}; {}",
                super::guard::guards(self.same(), durable.then(|| self.synchronous_commit())),
                self.clean()
            ),
            Use::Own => self.own(durable),
        };
        sqlx::raw_sql(AssertSqlSafe(settings)).execute(conn).await?;
        Ok(())
    }

    /// The settings of a session that no handler ever has.
    fn own(&self, durable: bool) -> String {
        let mut settings = format!("SET lock_timeout = {LOCK_WAIT}; SET statement_timeout = {};", OWN.as_millis());
        if durable {
            settings += &format!(" SET synchronous_commit = {};", self.synchronous_commit());
        }
        if self.watches {
            settings += &format!(" SET {WATCH} = '1s';");
        }
        settings
    }

    /// Prepares the statement that gives back a handler's locks, and tells whether there is more to undo that survives
    /// `RESET ALL`: another role, temporary tables, channels, cursors. Where a handler has removed all prepared
    /// statements it fails, and the connection is closed.
    fn clean(&self) -> String {
        format!(
            "PREPARE idem_clean AS SELECT pg_catalog.pg_advisory_unlock_all()::text = '',
                current_user = {} AND session_user = {} AND pg_catalog.pg_my_temp_schema() = 0
                AND NOT EXISTS (SELECT FROM pg_catalog.pg_listening_channels())
                AND NOT EXISTS (SELECT FROM pg_catalog.pg_cursor())",
            literal(&self.role),
            literal(&self.user)
        )
    }

    /// The condition of [`MEANING`].
    pub(super) fn same(&self) -> &str {
        &self.same
    }

    /// What a transaction in a pooler's session begins with, beside its limits. sqlx gives names to what a handler
    /// prepares, and one that an earlier transaction has left in the session would be in the way of the same name.
    pub(super) fn pooled(&self) -> String {
        if self.watches { format!(" DEALLOCATE ALL; SET LOCAL {WATCH} = '1s';") } else { " DEALLOCATE ALL;".to_owned() }
    }

    /// What idem's transactions run with: the session's own level where that is stronger than idem needs.
    pub(super) fn synchronous_commit(&self) -> &'static str {
        if self.synchronous_commit == "remote_apply" { "remote_apply" } else { "on" }
    }
}
