//! The options of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;

use crate::store::StoreFacts;
use crate::{BoxError, Error};

use super::begin::{Isolation, Kind};
use super::check::For;
use super::handle::{Inner, Postgres};
use super::limits::Use;
use super::login::{self, Callback, Login};
use super::pool::Pool;
use super::quote::quoted;
use super::{check, claims_sql, local_sql, migrate, outbox_sql, replies, tables};

/// The schema by default, here and of the command `idem`.
const SCHEMA: &str = "idem_store";

/// The options of a [`Postgres`] store. Returned by [`Postgres::options`].
///
/// ```no_run
/// # use std::time::Duration;
/// # use idem_core::Postgres;
/// # async fn connect() -> Result<(), idem_core::Error> {
/// let store = Postgres::options("postgres://billing@db/billing")
///     .schema("billing_idem")
///     .connections(32)
///     .retention(Duration::from_secs(30 * 24 * 3600))
///     .verify_only()
///     .connect()
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use]
pub struct PostgresOptions {
    url: String,
    credentials: Option<Callback>,
    schema: String,
    connections: usize,
    retention: Duration,
    verify_only: bool,
    resets: bool,
    of: For,
    kind: Kind,
}

impl PostgresOptions {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            credentials: None,
            schema: SCHEMA.to_owned(),
            connections: 32,
            retention: Duration::from_secs(7 * 24 * 3600),
            verify_only: false,
            resets: false,
            of: For::Workers,
            kind: Kind { pooled: false, isolation: Isolation::ReadCommitted },
        }
    }

    /// Logs in with what this returns, which is called for each new connection: for databases of a cloud, whose
    /// passwords are tokens that expire within minutes (IAM of RDS and Cloud SQL, Entra ID of Azure), and for secrets
    /// that are rotated. It gets the options of the URL, and returns them with another password, or another user as
    /// well.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Postgres};
    /// # async fn token() -> Result<String, BoxError> { Ok(String::new()) }
    /// # async fn connect() -> Result<(), BoxError> {
    /// let store = Postgres::options("postgres://billing@db.example/billing?sslmode=verify-full")
    ///     .credentials(|options| async move { Ok(options.password(&token().await?)) })
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// A connection stays logged in when its password expires; only the next login needs the next one. The callback may
    /// be called for several logins at once. It has 5 seconds, so it should return a token that it has fetched before.
    /// Its error, its panic, and no answer in time are a failed login: it ends the start of a worker, and later it is
    /// tried again like any lost connection, while the connections that are open go on. Its error is shown and logged,
    /// so it must hold no secret. The options that the callback returns are neither shown nor logged.
    ///
    /// sqlx logs no statements of these connections, since the text of idem's has keys and payloads. The callback may return
    /// options that log them, as in development.
    ///
    /// It may return other startup settings, such as `options.options([("app.tenant", "acme")])` or
    /// `options.options([("role", "billing")])` for roles that a vault creates for an hour. They are the initial
    /// settings of the session, to which a handler's changes are reset before the next message. (A pooler accepts none.)
    /// idem applies its own settings after them. It must always name the same database: the claims are there.
    pub fn credentials<F, A>(mut self, ask: F) -> Self
    where
        F: Fn(PgConnectOptions) -> A + Send + Sync + 'static,
        A: Future<Output = Result<PgConnectOptions, BoxError>> + Send + 'static,
    {
        self.credentials = Some(Arc::new(move |options| Box::pin(ask(options))));
        self
    }

    /// The schema of idem's tables; `idem_store` by default. Any name of 1 to 63 bytes without NUL is valid; it is
    /// quoted.
    ///
    /// A schema with the name of the role is an error while the role's search path contains `"$user"`: PostgreSQL would
    /// create the application's own tables there, too.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// // Two services in one database, each with its own tables.
    /// let store = idem_core::Postgres::options("postgres://billing@db/shop").schema("billing_idem").connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn schema(mut self, name: impl Into<String>) -> Self {
        self.schema = name.into();
        self
    }

    /// The maximum number of connections; 32 by default, at least 2. Connections are opened when they are needed. A few of them
    /// are for idem's own statements: one, two from 4 on, and then an eighth, at most 8. The others are lent to handlers: each
    /// message that is being processed uses one. The workers of a store share them: if all can use more than there are at once,
    /// messages wait for a connection, and the log has the sum. That costs throughput, and time: where handlers take
    /// long, a message may wait until the broker takes it back (the consumer timeout of RabbitMQ). A ping of the database that
    /// finds all of idem's own in use opens one more for itself.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// How long claims are kept after their message was processed; 7 days by default. A message that is redelivered
    /// after that becomes a dead letter with reason `too old`, or is processed again if the broker has no clock. Zero
    /// is an error.
    ///
    /// A worker that starts writes the value to the table `handlers` for each of its handlers. The greater value wins,
    /// so that two versions of a service, and services that share a schema, never prune claims that another one needs.
    /// To lower it, start all workers with the lower value, and then run
    /// `UPDATE idem_store.handlers SET retention = '3 days' WHERE consumer = 'billing'`. NULL keeps claims forever.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// Verifies that the tables exist instead of creating them: for a role that may not create tables. Another role
    /// creates them, with the SQL of [`Postgres::migrations`] or by connecting once without this option, and then runs
    ///
    /// ```sql
    /// GRANT USAGE ON SCHEMA idem_store TO worker;
    /// GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA idem_store TO worker;
    /// ```
    ///
    /// The error for a role without these says them, with the names of the schema and of the role. With `GRANT SELECT ON ALL
    /// SEQUENCES IN SCHEMA idem_store TO worker` it also finds sequences that are behind their tables, as logical replication
    /// leaves them, and a relay does not visit again what waits for a destination or was deleted under an old snapshot.
    pub fn verify_only(mut self) -> Self {
        self.verify_only = true;
        self
    }

    /// Logs a warning instead of returning an error if the database may lose a commit that it has reported (`fsync`,
    /// `full_page_writes` or `synchronous_commit` off, unlogged tables). **A crash then loses messages**, since the
    /// broker was already acked. The transactions of messages turn `synchronous_commit` on nevertheless.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// // A server of tests that runs with `fsync = off`, as that of testcontainers does.
    /// let url = "postgres://test@localhost/test";
    /// let store = idem_core::Postgres::options(url).allow_unsafe_durability().connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn allow_unsafe_durability(mut self) -> Self {
        self.of = For::UnsafeWorkers;
        self
    }

    /// For a store by which an operator reads and changes messages, and on which no worker and no relay runs: it
    /// [only verifies](Self::verify_only) that the tables exist, has 2 connections, and needs no more than SELECT on the tables. The
    /// server may be a standby, and it may lose commits. A change that the role or the server does not permit is
    /// [`StoreError::Denied`](crate::store::StoreError::Denied).
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// // A role with `GRANT SELECT ON ALL TABLES IN SCHEMA idem_store`, on a replica.
    /// let store = idem_core::Postgres::options("postgres://viewer@replica/billing").for_operator().connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn for_operator(mut self) -> Self {
        self.of = For::Operator;
        self.verify_only().connections(2)
    }

    /// Connects through a pooler in transaction mode (pgbouncer), which may run each transaction in a different
    /// session: nothing is prepared, set or locked for longer than a transaction. Without batches, the number of round trips
    /// stays the same, but the server parses and plans each claim again. The pooler needs as many server connections as there
    /// are [`connections`](Self::connections) here; otherwise messages wait in the pooler.
    ///
    /// A handler may prepare statements, as sqlx does implicitly: they are deallocated when the next transaction
    /// begins. Each transaction sets for itself, in the string of BEGIN, the role and the settings that the first login of the
    /// store found: `search_path`, `row_security`, `session_replication_role`, `client_encoding`, time zone, date and interval
    /// style. Other session state of a handler (`SET app.tenant`, `LISTEN`, a temporary table, a session-level advisory lock)
    /// reaches the next message, and all of it other clients of the pooler: use `SET LOCAL` and `pg_advisory_xact_lock` instead.
    ///
    /// Set `ALTER ROLE .. SET default_transaction_read_only = on` for the role; idem begins its own transactions as
    /// READ WRITE. A handler that ends its transaction can then write nothing after it. The store logs its absence when it
    /// connects. A batch also checks after each handler whether its transaction is still open, at one round trip per message.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// // A pool of pgbouncer with `default_pool_size = 20` or more.
    /// let url = "postgres://billing@bouncer:6432/billing";
    /// let store = idem_core::Postgres::options(url).pgbouncer().connections(20).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn pgbouncer(mut self) -> Self {
        self.kind.pooled = true;
        self
    }

    /// Gives each handler of a batch a clean role and clean settings: all settings are reset between two handlers
    /// (`RESET ROLE`, `RESET ALL`), and the transaction is checked, which costs one more round trip per message. Use this
    /// if handlers set something that others must not see (`SELECT set_config('app.tenant', $1, true)`), or may end the
    /// transaction. Without a pooler it is always on if row-level security applies to the role at the start.
    ///
    /// Without it, a setting that a handler of a batch makes with `SET LOCAL` applies to the handlers after it until
    /// the batch commits. If that is the role, `search_path`, `row_security`, `session_replication_role`, the encoding, the
    /// time zone or the date style, nothing of the batch is committed, and the batch is split until each message runs singly;
    /// a warning is logged. Any other setting, in particular those of the application, reaches the next handler. A
    /// handler of `Batch<M>` is called once for a batch, and a message that runs singly always gets a clean session.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// // For handlers that begin with `SELECT set_config('app.tenant', $1, true)` for triggers, with `.batch(100)`.
    /// let url = "postgres://billing@db/shop";
    /// let store = idem_core::Postgres::options(url).reset_between_messages().connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn reset_between_messages(mut self) -> Self {
        self.resets = true;
        self
    }

    /// The isolation of the transactions in which handlers run; read committed by default, whatever the database's
    /// default is. A handler cannot change it with `SET TRANSACTION`, since the claim comes before its first statement.
    /// With another level, a handler that fails with a serialization failure (40001), or whose COMMIT does, runs again
    /// at once, up to 5 times without an attempt; its error must keep sqlx's as a source. A lower level than the
    /// database's default is logged as a warning.
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), idem_core::Error> {
    /// use idem_core::store::postgres::Isolation;
    ///
    /// let url = "postgres://billing@db/bank";
    /// let store = idem_core::Postgres::options(url).isolation(Isolation::Serializable).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.kind.isolation = isolation;
        self
    }

    /// Connects, runs the missing migrations (or verifies the tables), and checks the settings of the server.
    ///
    /// # Errors
    /// [`Error::Config`] for an option or a setting that cannot work or that would lose messages, for tables that lack
    /// a column, and for tables that a newer version of idem has changed so that this one must not use them; the text
    /// names the fix. [`Error::Database`] if the URL is invalid, the server cannot be reached, or it rejects the login.
    pub async fn connect(self) -> Result<Postgres, Error> {
        self.validate()?;
        let kind = self.kind;
        let login = Login { target: login::parse(&self.url)?, credentials: self.credentials };
        let name = login.name();
        let failed = |what: &str, source| Error::Database { what: format!("{what} {name}"), source };
        let quoted = quoted(&self.schema);
        let writes = [outbox_sql::prepare(), local_sql::prepare(), replies::prepare()].join("; ");
        let prepared = [claims_sql::prepare(), writes].map(|text| text.replace("{schema}", &quoted));
        let pool = Arc::new(Pool::new(login, kind, prepared, self.connections, self.resets));
        let mut connection = pool.connection(Use::Own).await.map_err(|lost| {
            let error = lost.into_error();
            // The errors of pgbouncer and RDS Proxy about a startup parameter.
            let text = error.to_string();
            match text.contains("unsupported startup parameter") || text.contains("command-line options") {
                true => Error::Config(format!("{name} is a pooler ({error}): use `.pgbouncer()`")),
                false => failed("cannot connect to", error),
            }
        })?;
        if kind.pooled && !connection.ready.session.read_only {
            tracing::warn!(
                "sessions of this role are not read-only, because default_transaction_read_only is off: run ALTER ROLE \
                 .. SET default_transaction_read_only = on. Otherwise a handler that ends its transaction can write \
                 outside of it"
            );
        }
        let default = connection.ready.session.isolation;
        if default > kind.isolation {
            tracing::warn!(
                "the database's default_transaction_isolation is stricter than that of the handlers: give the store \
                 `.isolation(Isolation::{default:?})`, or `ALTER ROLE .. SET default_transaction_isolation` for its role. \
                 Otherwise handlers run with {:?}",
                kind.isolation
            );
        }
        let role = connection.ready.session.role.clone();
        let clock = check::server(&mut connection, self.of, &failed).await?;
        migrate::run(&mut connection, &self.schema, &role, (self.of, self.verify_only), &failed).await?;
        tables::check(&mut connection, &self.schema, self.of, &failed).await?;
        connection.put_back();
        Ok(Postgres(Arc::new(Inner {
            pool,
            facts: StoreFacts {
                schema: (self.schema != SCHEMA).then(|| self.schema.clone()),
                ..StoreFacts::new(
                    format!("{name}, schema {}", self.schema),
                    self.connections,
                    [format!("{quoted}."), String::new()],
                    "now()",
                )
            },
            schema: self.schema,
            quoted,
            retention: self.retention,
            handlers: Default::default(),
            outboxes: Default::default(),
            clock,
        })))
    }

    fn validate(&self) -> Result<(), Error> {
        let schema = &self.schema;
        let why = if schema.is_empty() || schema.len() > 63 || schema.contains('\0') {
            // PostgreSQL truncates longer names silently, so two of them could mean the same schema.
            format!("the schema {schema:?} cannot be used: give `.schema(..)` a name of 1 to 63 bytes without NUL")
        } else if self.connections < 2 {
            "a store needs at least 2 connections, one for handlers and one for its own statements: give `.connections(..)` at \
             least what its workers need at once, so `.connections(2)` or more"
                .to_owned()
        } else if self.retention.is_zero() {
            "a retention of zero forgets every claim at once, so that every duplicate is processed: give `.retention(..)` \
             more than the longest time after which the broker may deliver a message again"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Config(why))
    }
}

/// Omits the URL, since it may contain a password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("schema", &self.schema)
            .field("credentials", &self.credentials.is_some())
            .finish_non_exhaustive()
    }
}
