//! How to reach the database, and what to ask of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use crate::Error;

use super::lanes::Lanes;
use super::sql::Statements;
use super::statement::quoted;
use super::{Inner, Postgres, check, migrate};

/// How to reach a PostgreSQL database, and what to ask of it. Made by [`Postgres::options`].
#[derive(Clone)]
#[must_use]
pub struct PostgresOptions {
    url: String,
    schema: String,
    connections: usize,
    retention: Duration,
    verify_only: bool,
    unsafe_durability: bool,
    pooled: bool,
    resets: bool,
}

impl PostgresOptions {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            schema: "idem_store".to_owned(),
            connections: 32,
            retention: Duration::from_secs(7 * 24 * 3600),
            verify_only: false,
            unsafe_durability: false,
            pooled: false,
            resets: false,
        }
    }

    /// The schema of idem's tables; default `idem_store`. Any name of 1 to 63 bytes without NUL will do; it is quoted.
    ///
    /// A schema with the name of the role is refused while the role's search path says `"$user"`: PostgreSQL would put the
    /// application's own tables there, too.
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// How many connections there may be at a time; default 32. They are made when they are needed. Each message in
    /// work has one, and a worker sets aside what it can use at once.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// For how long claims are kept after their message was processed; default 7 days. A message that comes again after
    /// that becomes a dead letter, too old, or is processed again where the broker has no clock.
    ///
    /// A worker that starts writes it into the table `handlers` for each of its handlers. The greater value wins, so that two
    /// versions of a service, and services that share a schema, never prune what another one needs. To lower it, start all
    /// workers with the lower value, and then
    /// `UPDATE idem_store.handlers SET retention = '3 days' WHERE consumer = 'billing'`. NULL keeps them for ever.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Checks that the tables are there instead of making them: for a role that may not create tables.
    pub fn verify_only(mut self) -> Self {
        self.verify_only = true;
        self
    }

    /// Goes on, with a warning in the log, where the database may lose a commit that it has reported (`fsync`,
    /// `full_page_writes` or `synchronous_commit` off, unlogged tables). **Messages are lost in a crash then**, since
    /// the broker was acked already.
    pub fn allow_unsafe_durability(mut self) -> Self {
        self.unsafe_durability = true;
        self
    }

    /// Goes through a pooler in transaction mode (pgbouncer), which gives each transaction any of its sessions: nothing is
    /// prepared, set or locked for longer than a transaction. The number of round trips is the same, but the server parses
    /// and plans each claim anew. The pooler needs as many server connections as there are
    /// [`connections`](Self::connections) here, or messages wait in it.
    ///
    /// A handler may prepare statements, as sqlx does by itself: what is left of them is removed when the next transaction
    /// begins. What it sets for the session (`SET`, `LISTEN`, a temporary table, an advisory lock of the session) would
    /// reach other clients of the pooler, and the next message: let it use `SET LOCAL` and `pg_advisory_xact_lock`.
    ///
    /// Let the role have `ALTER ROLE .. SET default_transaction_read_only = on`; idem's own transactions say READ WRITE. Then
    /// nothing can be written behind a transaction that a handler has ended. Without it each batch asks after each
    /// handler whether its transaction is still open, which is one more round trip for each message; the log says so when the
    /// store connects.
    pub fn pgbouncer(mut self) -> Self {
        self.pooled = true;
        self
    }

    /// Gives each handler of a batch a clean role and clean settings: between two of them everything that was set is reset
    /// (`RESET ROLE`, `RESET ALL`), with one more round trip for each message. Say this where handlers set something for
    /// their transaction that others must not see, a tenant for row-level security say:
    /// `SELECT set_config('app.tenant', $1, true)`.
    ///
    /// Without it, what a handler of a batch sets with `SET LOCAL` holds for the handlers behind it until the batch
    /// commits. Where that is the role, `search_path`, `row_security`, `session_replication_role`, the time zone or the
    /// style of dates, nothing of the batch is committed, and it is split until each message is alone; a warning tells
    /// so. Any other setting, those of the application above all, reaches the next handler. A handler of `Batch<M>` is called
    /// once for a batch, and a message that runs alone always finds a clean session.
    pub fn reset_between_messages(mut self) -> Self {
        self.resets = true;
        self
    }

    /// Connects, migrates idem's tables (or verifies them) and checks the settings of the server.
    ///
    /// # Errors
    /// [`Error::Config`] for an option or a setting that cannot work or that would lose messages, for tables that lack a
    /// column, and for tables that a newer version of idem has changed so that this one may not use them; the text names the
    /// cure. [`Error::Database`] where the URL is wrong, the server is away or does not let us in.
    pub async fn connect(self) -> Result<Postgres, Error> {
        self.validate()?;
        let target = self.target()?;
        let name = name(&target);
        let failed = |what: &str, source| Error::Database { what: format!("{what} {name}"), source };
        let lanes = Lanes::new(target, self.connections, !self.unsafe_durability, self.pooled, self.resets);
        let mut lane = lanes.own().await.map_err(|lost| {
            let error = lost.into_error();
            // pgbouncer's words, and RDS Proxy's, about a setting that is sent when a session starts.
            let text = error.to_string();
            match text.contains("unsupported startup parameter") || text.contains("command-line options") {
                true => Error::Config(format!("{name} is a pooler ({error}): say `.pgbouncer()`")),
                false => failed("cannot connect to", error),
            }
        })?;
        if self.pooled && !lane.session().read_only {
            tracing::info!(
                "behind a pooler, batches ask after each handler whether their transaction is still open: ALTER ROLE .. SET \
                 default_transaction_read_only = on saves that round trip"
            );
        }
        check::server(&mut lane, self.unsafe_durability, &failed).await?;
        migrate::run(&mut lane, &self.schema, self.verify_only, &failed).await?;
        check::tables(&mut lane, &self.schema, self.unsafe_durability, &failed).await?;
        lane.put_back();
        let inner = Inner {
            statements: Statements::new(&quoted(&self.schema)),
            lanes,
            name,
            schema: self.schema,
            connections: self.connections,
            retention: self.retention,
            left: std::sync::Arc::new(tokio::sync::Semaphore::new(self.connections)),
        };
        Ok(Postgres(std::sync::Arc::new(inner)))
    }

    fn validate(&self) -> Result<(), Error> {
        let schema = &self.schema;
        let why = if schema.is_empty() || schema.len() > 63 || schema.contains('\0') {
            // PostgreSQL cuts longer names silently, so that two of them could mean the same schema.
            format!("the schema {schema:?} cannot be used: give `.schema(..)` a name of 1 to 63 bytes without NUL")
        } else if self.connections == 0 {
            "a store needs connections: give `.connections(..)` at least what its workers need at once".to_owned()
        } else if self.retention.is_zero() {
            "a retention of zero forgets every claim at once, so that every duplicate is processed: give `.retention(..)` \
             more than the longest time after which the broker may deliver a message again"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Config(why))
    }

    fn target(&self) -> Result<PgConnectOptions, Error> {
        let wrong = |source: crate::BoxError| Error::Database {
            what: "the database URL cannot be read: it looks like postgres://user:password@host:5432/database".into(),
            source,
        };
        let Some(rest) = ["postgres://", "postgresql://"].iter().find_map(|scheme| self.url.strip_prefix(scheme))
        else {
            return Err(wrong("it does not begin with postgres://".into()));
        };
        // A slash, question mark or hash in the password ends the host for a parser, and what follows would be taken for
        // a database's name, which is no secret.
        let authority = rest.find(['/', '?', '#']).map_or(rest, |end| &rest[..end]);
        if rest.contains('@') && !authority.contains('@') {
            return Err(wrong("an `@` stands behind the host: percent-encode the password (`/` is %2F)".into()));
        }
        let target = PgConnectOptions::from_str(&self.url).map_err(|error| wrong(error.into()))?;
        Ok(match self.pooled {
            // The setting is one that pgbouncer refuses (its manual, `ignore_startup_parameters`), and a cached statement
            // would be looked for in a session that does not have it.
            true => target.extra_float_digits(None).statement_cache_capacity(0),
            false => target,
        })
    }
}

/// The database, named without its password.
fn name(target: &PgConnectOptions) -> String {
    let user = target.get_username();
    let database = target.get_database().unwrap_or(user);
    let port = target.get_port();
    match target.get_socket() {
        Some(socket) => format!("PostgreSQL at {} port {port}, database {database:?}, user {user:?}", socket.display()),
        None => format!("PostgreSQL at {}:{port}, database {database:?}, user {user:?}", target.get_host()),
    }
}

/// Leaves the URL out, since it may hold a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .field("retention", &self.retention)
            .field("verify_only", &self.verify_only)
            .field("unsafe_durability", &self.unsafe_durability)
            .field("pooled", &self.pooled)
            .field("resets", &self.resets)
            .finish_non_exhaustive()
    }
}
