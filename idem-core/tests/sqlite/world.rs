//! A separate database file per test.

use std::path::PathBuf;
use std::time::Duration;

use idem_core::store::sqlite::{SqliteOptions, Txn};
use idem_core::store::{ClaimState, CommitResult, Consumers, HandlerId, Identity, InboxRows, NewRow, Transactions};
use idem_core::{Delivery, Fingerprint, HasConnection, Key, Reason, Sqlite};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions};

pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A directory that is removed with the value.
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new() -> Self {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(uuid::Uuid::new_v4().to_string());
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("orders.db"))
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A store, a handler, and a table `effects`.
pub(crate) struct World {
    pub(crate) store: Sqlite,
    pub(crate) handler: HandlerId,
    pub(crate) dir: Dir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|options| options).await
    }

    pub(crate) async fn with(change: impl FnOnce(SqliteOptions) -> SqliteOptions) -> Self {
        let dir = Dir::new();
        let store = change(Sqlite::options(dir.url())).connect().await.unwrap();
        let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
        let world = Self { store, handler, dir };
        world.sql("CREATE TABLE effects (id INTEGER PRIMARY KEY)").await;
        world
    }

    /// A connection outside idem, as another process has.
    pub(crate) async fn outsider(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.dir.path("orders.db"));
        options.busy_timeout(LONG).connect().await.unwrap()
    }

    pub(crate) async fn sql(&self, text: &str) {
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.outsider().await).await.unwrap();
    }

    pub(crate) async fn count(&self, what: &str) -> i64 {
        let text = AssertSqlSafe(format!("SELECT count(*) FROM {what}"));
        sqlx::query_scalar(text).fetch_one(&mut self.outsider().await).await.unwrap()
    }

    pub(crate) fn identity(&self, key: &str) -> Identity {
        let key = Key::of(key).unwrap();
        Identity { handler: self.handler, fingerprint: Fingerprint::of(key.as_bytes()), key }
    }

    /// A transaction with a new claim of this key, as a handler gets it.
    pub(crate) async fn claimed(&self, key: &str) -> Txn {
        let identity = self.identity(key);
        let claim = self.store.begin_first(LONG, Some(&identity));
        let (txn, claimed) = claim.await.unwrap();
        assert!(claimed.is_new());
        txn
    }

    /// Processes a message.
    pub(crate) async fn process(&self, key: &str) {
        let txn = self.claimed(key).await;
        assert!(matches!(self.store.commit(txn).await, CommitResult::Done));
    }

    /// Stores a message in the inbox, scheduled and due, or dead.
    pub(crate) async fn store(&self, key: &str, state: Result<Duration, Reason>) -> Identity {
        let identity = self.identity(key);
        let mut txn = self.store.begin(LONG).await.unwrap();
        self.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap();
        let delivery = Delivery::new("orders", key.to_owned());
        let row = NewRow::new(&identity, &delivery, state);
        self.store.insert(&mut txn, &[row]).await.unwrap();
        assert!(matches!(self.store.commit(txn).await, CommitResult::Done));
        identity
    }

    /// Whether the claim is dated; `None` if there is no claim.
    pub(crate) async fn dated(&self, key: &str) -> Option<bool> {
        let mut txn = self.store.begin(LONG).await.unwrap();
        let existing_claims = self.store.existing_claims(&mut txn, &[&self.identity(key)], true).await.unwrap();
        self.store.rollback(txn).await.unwrap();
        existing_claims[0].map(|existing_claim| existing_claim.age.is_some())
    }
}

/// The connection that a handler gets.
pub(crate) fn lent(txn: &mut Txn) -> &mut SqliteConnection {
    Sqlite::connection(txn)
}

/// Runs a handler's statement.
pub(crate) async fn run(txn: &mut Txn, text: &'static str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(text).execute(lent(txn)).await.map(|_| ())
}
