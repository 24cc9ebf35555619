//! idem and a handwritten loop (D of the table in `main`), both on SQLite. Each commit is written to disk (`synchronous = FULL`).

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, ensure};
use bytes::Bytes;
use idem::prelude::*;
use sha2::{Digest, Sha256};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Mutex;

use crate::message::OrderPaid;
use crate::queue::{Deliveries, Queue};
use crate::worker;

const EFFECT: &str = "INSERT INTO effects (order_id, amount) VALUES (?, ?)";

#[idempotent(key = "event_id", name = "order_paid")]
async fn paid(event: OrderPaid, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query(EFFECT).bind(event.order_id).bind(event.amount).execute(tx).await?;
    Ok(())
}

/// The databases: two files, so that neither side benefits from the other's pages.
pub(crate) struct Files {
    idem: PathBuf,
    hand_written: PathBuf,
}

impl Files {
    pub(crate) fn new() -> Result<Self> {
        let directory = crate::servers::directory()?;
        let file = |name: &str| directory.join(name);
        Ok(Self { idem: file("idem.sqlite"), hand_written: file("hand_written.sqlite") })
    }

    /// Returns idem's messages per second.
    pub(crate) async fn idem(&self, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
        let (count, queue) = (messages.len(), Queue::new(messages));
        let mut conn = fresh(&self.idem).await?;
        let store = Sqlite::connect(&self.idem.display().to_string()).await?;
        let worker = Worker::new("bench", store, Deliveries::of(&queue)).handler::<paid>().concurrency(lanes);
        let rate = worker::drive(worker, &queue).await?;
        verify(&mut conn, count).await?;
        Ok(rate)
    }

    /// Returns the loop's messages per second. The tasks share one connection and wait for each other, because SQLite
    /// allows one writer at a time.
    pub(crate) async fn hand_written(&self, lanes: usize, messages: Vec<Bytes>) -> Result<f64> {
        let count = messages.len();
        let mut conn = fresh(&self.hand_written).await?;
        let table = "CREATE TABLE claims (handler_id INTEGER NOT NULL, key BLOB NOT NULL, fingerprint BLOB NOT NULL,
            processed_at INTEGER, PRIMARY KEY (handler_id, key)) WITHOUT ROWID;
            CREATE INDEX dated ON claims (processed_at) WHERE processed_at IS NOT NULL";
        sqlx::raw_sql(table).execute(&mut conn).await?;
        let writer = Arc::new(Mutex::new(open(&self.hand_written).await?));
        let process = move |payload: Bytes| {
            let writer = writer.clone();
            async move { process(&mut *writer.lock().await, &payload).await }
        };
        let rate = Queue::new(messages).process(lanes, process).await?;
        verify(&mut conn, count).await?;
        Ok(rate)
    }
}

async fn process(conn: &mut SqliteConnection, payload: &[u8]) -> Result<()> {
    let event: OrderPaid = serde_json::from_slice(payload)?;
    let fingerprint = Sha256::digest(payload);
    let claim = "INSERT INTO claims (handler_id, key, fingerprint, processed_at) VALUES (1, ?, ?, unixepoch('subsec'))";
    let mut tx = conn.begin_with("BEGIN IMMEDIATE").await?;
    sqlx::query(claim).bind(&event.event_id.as_bytes()[..]).bind(&fingerprint[..16]).execute(&mut *tx).await?;
    sqlx::query("SAVEPOINT guard").execute(&mut *tx).await?;
    sqlx::query(EFFECT).bind(event.order_id).bind(event.amount).execute(&mut *tx).await?;
    sqlx::query("RELEASE guard").execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

/// Creates a new file with the table of the handler.
async fn fresh(file: &PathBuf) -> Result<SqliteConnection> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = file.clone().into_os_string();
        name.push(suffix);
        // It may not exist.
        let _ = std::fs::remove_file(name);
    }
    let mut conn = open(file).await?;
    sqlx::raw_sql("CREATE TABLE effects (order_id INTEGER NOT NULL, amount INTEGER NOT NULL)")
        .execute(&mut conn)
        .await?;
    Ok(conn)
}

async fn open(file: &PathBuf) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Wal).synchronous(SqliteSynchronous::Full);
    Ok(SqliteConnection::connect_with(&options).await?)
}

async fn verify(conn: &mut SqliteConnection, messages: usize) -> Result<()> {
    let effects: i64 = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(conn).await?;
    ensure!(effects == messages as i64, "{messages} messages made {effects} rows");
    Ok(())
}
