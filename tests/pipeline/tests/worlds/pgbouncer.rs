//! The same schema through a pgbouncer, in transaction mode except where a test says otherwise, one pgbouncer per world.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use idem_conformance::store::{End, Features, Setup, World};
use idem_core::store::postgres::PostgresOptions;
use idem_core::{BoxError, Error, Postgres};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgConnection, Row, raw_sql};
use uuid::Uuid;

use crate::direct::PostgresWorld;

/// Its sessions are read-only except in idem's transactions, as `.pgbouncer()` advises, unless they are `WRITABLE`.
pub(crate) struct PgBouncerWorld<const WRITABLE: bool = false> {
    direct: PostgresWorld,
    pooler: Pooler,
}

impl PgBouncerWorld<true> {
    /// The store connects with a separate role whose sessions are read-only.
    pub(crate) async fn with_read_only_role() -> Option<Self> {
        let direct = PostgresWorld::make().await?;
        let database = with_role(&direct, &["default_transaction_read_only = on"]).await;
        let pooler = Pooler::start(&database, TRANSACTION, "").await?;
        Some(Self { direct, pooler })
    }

    /// The pooler of another database of the same server.
    pub(crate) async fn before(direct: PostgresWorld, database: &str) -> Option<Self> {
        let pooler = Pooler::start(database, TRANSACTION, "").await?;
        Some(Self { direct, pooler })
    }

    /// The pooler gives each client a session of its own, in which it has run this, and ignores the settings of the client's
    /// login.
    pub(crate) async fn of_sessions(connect_query: &str) -> Option<Self> {
        let direct = PostgresWorld::make().await?;
        let pooler = Pooler::start(&direct.url, SESSION, connect_query).await?;
        Some(Self { direct, pooler })
    }

    /// Behind a pooler in transaction mode that keeps the settings of a login from the server.
    pub(crate) async fn undetected() -> Option<Self> {
        let direct = PostgresWorld::make().await?;
        let mode = format!("{TRANSACTION}\nignore_startup_parameters = extra_float_digits,options");
        let pooler = Pooler::start(&direct.url, &mode, "").await?;
        Some(Self { direct, pooler })
    }

    /// The options of a store that need not know of such a pooler.
    pub(crate) fn undeclared(&self, setup: Setup) -> PostgresOptions {
        self.direct.options(&self.pooler.url, setup)
    }

    /// Removes the separate role and everything it owns.
    pub(crate) async fn drop_role(self) {
        let target: PgConnectOptions = self.pooler.url.parse().unwrap();
        let role = target.get_username().to_owned();
        drop(self.pooler);
        self.direct.run(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

impl<const WRITABLE: bool> PgBouncerWorld<WRITABLE> {
    pub(crate) fn url(&self) -> &str {
        &self.pooler.url
    }

    pub(crate) fn options(&self, setup: Setup) -> PostgresOptions {
        self.direct.options(&self.pooler.url, setup).pgbouncer()
    }

    /// The single number that a query returns in the session that the pooler used last.
    pub(crate) async fn session(&self, sql: &str) -> i64 {
        let target: PgConnectOptions = self.pooler.url.parse().unwrap();
        let mut conn = target.extra_float_digits(None).connect().await.unwrap();
        conn.fetch_one(raw_sql(AssertSqlSafe(sql))).await.unwrap().get(0)
    }
}

impl<const WRITABLE: bool> World for PgBouncerWorld<WRITABLE> {
    type Store = Postgres;
    type Connection = PgConnection;

    const FEATURES: Features = PostgresWorld::FEATURES;

    async fn make() -> Option<Self> {
        let direct = PostgresWorld::make().await?;
        let connect_query = if WRITABLE { "" } else { "SET default_transaction_read_only = on" };
        let pooler = Pooler::start(&direct.url, TRANSACTION, connect_query).await?;
        Some(Self { direct, pooler })
    }

    async fn store(&self, setup: Setup) -> Result<Postgres, Error> {
        self.options(setup).connect().await
    }

    fn own(&self, table: &str) -> String {
        self.direct.own(table)
    }

    fn name(&self, table: &str) -> String {
        self.direct.name(table)
    }

    async fn run(&self, sql: &str) {
        self.direct.run(sql).await;
    }

    async fn number(&self, sql: &str) -> i64 {
        self.direct.number(sql).await
    }

    async fn execute(tx: &mut PgConnection, sql: &str) -> Result<(), BoxError> {
        // First prepared under a name, as sqlx prepares a handler's statements, and left there.
        sqlx::query("SELECT 1").execute(&mut *tx).await?;
        PostgresWorld::execute(tx, sql).await
    }

    async fn changes(tx: &mut PgConnection, sql: &str) -> Result<bool, BoxError> {
        PostgresWorld::changes(tx, sql).await
    }

    async fn nested(tx: &mut PgConnection, sql: &str, end: End) -> Result<(), BoxError> {
        PostgresWorld::nested(tx, sql, end).await
    }

    fn earlier(column: &str, by: Duration) -> String {
        PostgresWorld::earlier(column, by)
    }

    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String {
        self.direct.refuse(what, table, key)
    }

    fn allow(&self, table: &str) -> String {
        self.direct.allow(table)
    }

    async fn waiting(&self) -> Option<i64> {
        self.direct.waiting().await
    }
}

/// Creates a role whose sessions have these settings. Returns the URL of the database for it.
async fn with_role(direct: &PostgresWorld, settings: &[&str]) -> String {
    let target: PgConnectOptions = direct.url.parse().unwrap();
    let role = format!("idem_role_{}", Uuid::new_v4().simple());
    let mut create = format!("CREATE ROLE {role} LOGIN PASSWORD 'secret' IN ROLE {}", target.get_username());
    for setting in settings {
        create += &format!("; ALTER ROLE {role} SET {setting}");
    }
    direct.run(&create).await;
    let (_, rest) = direct.url.rsplit_once('@').unwrap();
    format!("postgres://{role}:secret@{rest}")
}

/// The settings of a pgbouncer that lends a session for a transaction, and of one that lends it to a client for as long as
/// that is connected.
const TRANSACTION: &str = "pool_mode = transaction";
const SESSION: &str =
    "pool_mode = session\nserver_reset_query =\nignore_startup_parameters = extra_float_digits,options";

/// A pgbouncer that ends with this value, or with the process: its parent shell waits for the end of its input.
struct Pooler {
    shell: Child,
    home: PathBuf,
    url: String,
}

impl Pooler {
    /// Prints a line and returns `None` if the program is not installed.
    async fn start(database: &str, mode: &str, connect_query: &str) -> Option<Self> {
        let program =
            ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer", "/opt/homebrew/bin/pgbouncer"];
        let Some(program) = program.into_iter().find(|program| Path::new(program).exists()) else {
            assert!(std::env::var_os("CI").is_none(), "pgbouncer is not installed, and CI skips nothing");
            println!("skipped: pgbouncer is not installed, run cargo xtask test");
            return None;
        };
        // Short, because a socket path is limited; open, because pgbouncer does not stay root.
        let home = PathBuf::from(format!("/tmp/idem-{}", Uuid::new_v4().simple()));
        fs::create_dir(&home).unwrap();
        fs::set_permissions(&home, Permissions::from_mode(0o777)).unwrap();
        fs::write(home.join("ini"), settings(database, mode, connect_query, &home)).unwrap();
        let (user, password) = credentials(database);
        fs::write(home.join("users"), format!("\"{user}\" \"{password}\"\n")).unwrap();
        let user_of_root = "if [ $(id -u) = 0 ]; then set -- -u nobody; else set --; fi";
        let script = format!("{user_of_root}; {program} -q \"$@\" ini & read end; kill $!");
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", &script]).current_dir(&home).stdin(Stdio::piped()).stdout(Stdio::null());
        let shell = shell.stderr(Stdio::null()).spawn().unwrap();
        let socket = home.display().to_string().replace('/', "%2F");
        let url = format!("postgres://{user}:{password}@{socket}:6432/idem");
        let pooler = Self { shell, home, url };
        pooler.answers().await;
        Some(pooler)
    }

    async fn answers(&self) {
        let target: PgConnectOptions = self.url.parse().unwrap();
        for _ in 0..500 {
            if target.clone().extra_float_digits(None).connect().await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let log = fs::read_to_string(self.home.join("log")).unwrap_or_default();
        panic!("pgbouncer does not answer within ten seconds: {log}");
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        let _ = self.shell.wait();
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn settings(database: &str, mode: &str, connect_query: &str, home: &Path) -> String {
    let target: PgConnectOptions = database.parse().unwrap();
    let (host, port, home) = (target.get_host(), target.get_port(), home.display());
    let name = target.get_database().unwrap_or(target.get_username());
    let at_first = match connect_query {
        "" => String::new(),
        query => format!(" connect_query='{query}'"),
    };
    format!(
        "[databases]\nidem = host={host} port={port} dbname={name}{at_first}\n[pgbouncer]\n{mode}\n\
         unix_socket_dir = {home}\nlisten_port = 6432\nauth_type = plain\nauth_file = {home}/users\n\
         default_pool_size = 60\nlogfile = {home}/log\n"
    )
}

/// User and password of the URL; neither has a character that needs encoding in it.
fn credentials(database: &str) -> (&str, &str) {
    let (_, rest) = database.split_once("://").unwrap();
    let (credentials, _) = rest.rsplit_once('@').unwrap();
    credentials.split_once(':').unwrap()
}
