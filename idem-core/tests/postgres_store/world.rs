//! A separate world per test: a schema, and a connection to observe it from outside.

use std::time::Duration;

use idem_core::store::postgres::{PostgresOptions, Txn};
use idem_core::store::{
    ClaimState, CommitResult, Consumers, FetchFor, FetchLimit, HandlerId, Identity, InboxRows, NewRow, Row, RowKind,
    Transactions,
};
use idem_core::{Delivery, Fingerprint, HasConnection, Key, Postgres};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use uuid::Uuid;

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// The URL of the server. Prints a line and returns `None` if it is not set.
pub(crate) fn url() -> Option<String> {
    match std::env::var("DATABASE_URL") {
        Ok(url) => Some(url),
        Err(_) if std::env::var_os("CI").is_some() => panic!("DATABASE_URL is not set, and this is CI"),
        Err(_) => {
            eprintln!("skipped: DATABASE_URL is not set, run cargo xtask test");
            None
        }
    }
}

pub(crate) fn fresh(what: &str) -> String {
    format!("{what}_{}", Uuid::new_v4().simple())
}

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) store: Postgres,
    pub(crate) handler: HandlerId,
    /// Another session, which sees committed data.
    pub(crate) other: PgConnection,
}

pub(crate) async fn world() -> Option<World> {
    world_with(|options| options).await
}

pub(crate) async fn world_with(change: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Option<World> {
    let url = url()?;
    let schema = fresh("idem_test");
    let store = change(Postgres::options(&url).schema(&schema)).connect().await.unwrap();
    let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
    let mut other = PgConnection::connect(&url).await.unwrap();
    let text = format!("SET search_path TO {schema}; CREATE TABLE effects (what text NOT NULL)");
    other.execute(AssertSqlSafe(text)).await.unwrap();
    Some(World { url, schema, store, handler, other })
}

impl Drop for World {
    /// Drops the schema, also of a test that has failed. One that stays is no failure.
    fn drop(&mut self) {
        let (url, schema) = (self.url.clone(), self.schema.clone());
        // On a thread of its own, because a runtime cannot wait inside of another one.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut connection = PgConnection::connect(&url).await?;
                let text = format!("SET lock_timeout = '5s'; DROP SCHEMA {schema} CASCADE");
                connection.execute(sqlx::raw_sql(AssertSqlSafe(text))).await
            })
        });
        let _ = thread.join();
    }
}

impl World {
    /// The URL for sessions with this setting, as the default of a role would be.
    pub(crate) fn url_with(&self, setting: &str, value: &str) -> String {
        let and = if self.url.contains('?') { '&' } else { '?' };
        format!("{}{and}options=-c%20{setting}%3D{value}", self.url)
    }

    pub(crate) fn identity(&self, key: &str) -> Identity {
        Identity { handler: self.handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::of(key.as_bytes()) }
    }

    /// Begins and makes a claim.
    pub(crate) async fn claimed(&self, key: &str) -> Txn {
        let identity = self.identity(key);
        let claim = self.store.begin_first(DEADLINE, Some(&identity));
        let (txn, claimed) = claim.await.unwrap();
        assert!(claimed.is_new());
        txn
    }

    /// Begins and makes all of these claims.
    pub(crate) async fn claimed_many(&self, keys: &[&str]) -> Txn {
        let identities: Vec<_> = keys.iter().map(|key| self.identity(key)).collect();
        let mut txn = self.store.begin(DEADLINE).await.unwrap();
        let claimed = self.store.claim(&mut txn, &identities.iter().collect::<Vec<_>>(), ClaimState::Processed).await;
        assert!(claimed.unwrap().iter().all(idem_core::store::Claimed::is_new));
        txn
    }

    /// Makes a claim and commits.
    pub(crate) async fn process(&self, key: &str) {
        let txn = self.claimed(key).await;
        committed(self.store.commit(txn).await);
    }

    /// Stores a message as scheduled or as a dead letter.
    pub(crate) async fn schedule(&self, key: &str, state: Result<Duration, idem_core::Reason>) {
        let identity = self.identity(key);
        let delivery = Delivery::new("orders", key.as_bytes().to_vec());
        let mut txn = self.store.begin(DEADLINE).await.unwrap();
        self.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap();
        let row = NewRow::new(&identity, &delivery, state);
        self.store.insert(&mut txn, &[row]).await.unwrap();
        committed(self.store.commit(txn).await);
    }

    pub(crate) async fn fetch(&self, kind: RowKind, limit: usize) -> Vec<Row> {
        let handlers = [FetchFor::new(self.handler, LEASE)];
        self.store.fetch(&handlers, FetchLimit::rows(kind, limit), Uuid::new_v4()).await.unwrap().rows
    }

    pub(crate) async fn effects(&mut self) -> i64 {
        self.number("SELECT count(*) FROM effects").await
    }

    pub(crate) async fn claims(&mut self) -> i64 {
        self.number("SELECT count(*) FROM processed_messages").await
    }

    pub(crate) async fn number(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.other).await.unwrap()
    }
}

pub(crate) fn handler_connection(txn: &mut Txn) -> &mut PgConnection {
    <Postgres as HasConnection<PgConnection>>::connection(txn)
}

pub(crate) async fn effect(schema: &str, conn: &mut PgConnection) {
    let text = format!("INSERT INTO {schema}.effects VALUES ('effect')");
    sqlx::query(AssertSqlSafe(text)).execute(conn).await.unwrap();
}

/// Runs SQL as a handler might.
pub(crate) async fn raw(txn: &mut Txn, sql: &'static str) {
    handler_connection(txn).execute(sqlx::raw_sql(sql)).await.unwrap();
}

pub(crate) async fn backend(conn: &mut PgConnection) -> i32 {
    sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await.unwrap()
}

/// Waits until this backend has exited.
pub(crate) async fn gone(other: &mut PgConnection, pid: i32) {
    let asked = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1";
    while sqlx::query_scalar::<_, i64>(asked).bind(pid).fetch_one(&mut *other).await.unwrap() > 0 {
        tokio::task::yield_now().await;
    }
}

pub(crate) fn committed(answer: CommitResult) {
    assert!(matches!(answer, CommitResult::Done), "{answer:?}");
}
