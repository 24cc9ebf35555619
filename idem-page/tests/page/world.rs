//! A database as somebody on call may find it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem::Sqlite;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use tempfile::TempDir;

/// A file with idem's tables, and what is written into them.
pub(crate) struct World {
    pub(crate) store: Sqlite,
    url: String,
    _folder: TempDir,
}

/// A message of the inbox. The others of its columns are those of an ordinary dead letter.
pub(crate) struct Message<'a> {
    /// 1: billing/order_paid, 2: billing/charge, 3: shop/ship.
    pub(crate) handler: i64,
    pub(crate) key: &'a str,
    /// `None`: it is scheduled.
    pub(crate) reason: Option<&'a str>,
    pub(crate) error: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) payload: &'a [u8],
    /// How long ago it was stored, and died.
    pub(crate) age: Duration,
}

impl<'a> Message<'a> {
    pub(crate) fn new(key: &'a str, reason: Option<&'a str>, error: &'a str) -> Self {
        let (headers, payload) = (&[("tenant", "acme"), ("authorization", "Bearer s3cret")], br#"{"order_id":7}"#);
        Self { handler: 1, key, reason, error, headers, payload, age: Duration::from_secs(180) }
    }

    pub(crate) fn of(self, handler: i64) -> Self {
        Self { handler, ..self }
    }

    pub(crate) fn aged(self, minutes: u64) -> Self {
        Self { age: Duration::from_secs(60 * minutes), ..self }
    }
}

impl World {
    /// Three handlers of two consumers, and nothing else.
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("shop.db").display());
        let world = Self { store: Sqlite::connect(&url).await.unwrap(), url, _folder: folder };
        world
            .sql(
                "INSERT INTO idem_handlers (id, consumer, name, retention) VALUES (1, 'billing', 'order_paid', 604800000), \
                 (2, 'billing', 'charge', 604800000), (3, 'shop', 'ship', 604800000)",
            )
            .await;
        world
    }

    /// A night: a table is missing, a bank is slow, a relay is gone, no worker of the shop lives, and a call is unresolved.
    pub(crate) async fn of_a_night() -> Self {
        let world = Self::new().await;
        for order in 0..300 {
            let key = format!("9513c1b4-5c2d-4d3c-8a55-4be7d8a0{order:04}");
            let error = "error returned from database: relation \"orders\" does not exist";
            world.message(&Message::new(&key, Some("exhausted"), error).aged(3 + order / 3)).await;
        }
        for order in 0..111 {
            let key = format!("order-{order}");
            let error = format!("could not charge order {order}: timeout after 30 s");
            world.message(&Message::new(&key, Some("exhausted"), &error).aged(12 + order)).await;
        }
        for order in 0..5 {
            let key = format!("{order}");
            world.message(&Message::new(&key, Some("conflict"), "another message has this key").of(3).aged(64)).await;
        }
        for order in 0..17 {
            world.message(&Message::new(&format!("parcel-{order}"), None, "").of(3).aged(41)).await;
        }
        let unresolved =
            world.message(&Message::new("c-1", Some("unresolved"), "timeout after 30 s").of(2).aged(20)).await;
        world
            .sql(&format!(
                "UPDATE idem_inbox_messages SET provider_key = randomblob(16), called_at = created_at, call_name = 'charge' \
                 WHERE id = {unresolved}"
            ))
            .await;
        world.claim(1, "e-7", Duration::from_secs(7_410)).await;
        world
            .worker("billing", "db-7.example", |minute| {
                [60 + minute * 37 % 23, minute % 3, u64::from(minute < 22) * 18]
            })
            .await;
        world.worker("billing", "db-8.example", |minute| [58 + minute * 31 % 19, minute % 2, 0]).await;
        world.outbox("orders", 40, Duration::from_secs(720)).await;
        world.outbox("mail", 0, Duration::from_secs(2)).await;
        world.sql("UPDATE idem_handlers SET seen_at = seen_at - 2460000 WHERE consumer = 'shop'").await;
        world
    }

    /// A connection that does not wait for the disk.
    async fn db(&self) -> SqliteConnection {
        let mut db = SqliteConnection::connect(&self.url).await.unwrap();
        sqlx::raw_sql("PRAGMA synchronous = OFF").execute(&mut db).await.unwrap();
        db
    }

    /// Runs a statement. The text comes from the test.
    pub(crate) async fn sql(&self, text: &str) {
        let mut db = self.db().await;
        sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(&mut db).await.unwrap();
    }

    /// The first column of each row as text.
    pub(crate) async fn texts(&self, query: &str) -> Vec<String> {
        let mut db = self.db().await;
        let rows = sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&mut db).await.unwrap();
        rows.iter().map(|row| row.try_get_unchecked::<String, _>(0).unwrap()).collect()
    }

    /// Stores a message, and its claim. Returns its id.
    pub(crate) async fn message(&self, message: &Message<'_>) -> i64 {
        let mut db = self.db().await;
        let headers: Vec<_> = message.headers.iter().map(|(name, value)| serde_json::json!([name, value])).collect();
        let envelope = serde_json::json!({ "source": "orders", "message_id": message.key, "headers": headers });
        let stored = ago(message.age);
        let key = idem::Key::of(message.key).unwrap();
        let insert = "INSERT INTO idem_inbox_messages (created_at, run_at, died_at, handler_id, attempts, state, reason, key, \
                      fingerprint, error, envelope, payload) VALUES (?, ?, ?, ?, 5, ?, ?, ?, randomblob(32), ?, ?, ?)";
        let inserted = sqlx::query(insert)
            .bind(stored)
            .bind(stored)
            .bind(message.reason.map(|_| stored))
            .bind(message.handler)
            .bind(if message.reason.is_some() { "dead" } else { "scheduled" })
            .bind(message.reason)
            .bind(key.as_bytes().to_vec())
            .bind(message.error)
            .bind(envelope.to_string().into_bytes())
            .bind(message.payload.to_vec())
            .execute(&mut db)
            .await
            .unwrap();
        let claim = "INSERT OR IGNORE INTO idem_processed_messages (handler_id, key, fingerprint) VALUES (?, ?, randomblob(32))";
        sqlx::query(claim).bind(message.handler).bind(key.as_bytes().to_vec()).execute(&mut db).await.unwrap();
        inserted.last_insert_rowid()
    }

    /// Writes that a message was processed so long ago.
    pub(crate) async fn claim(&self, handler: i64, key: &str, age: Duration) {
        let key = idem::Key::of(key).unwrap();
        let mut db = self.db().await;
        sqlx::query("INSERT INTO idem_processed_messages (handler_id, key, fingerprint, processed_at) VALUES (?, ?, randomblob(32), ?)")
            .bind(handler)
            .bind(key.as_bytes().to_vec())
            .bind(ago(age))
            .execute(&mut db)
            .await
            .unwrap();
    }

    /// Writes a worker that lives, with what it has processed, seen twice and failed in each minute, the current one first.
    async fn worker(&self, consumer: &str, host: &str, minute: impl Fn(u64) -> [u64; 3]) {
        let [processed, duplicates, failed] =
            [0, 1, 2].map(|which| (0..60).map(|at| minute(at)[which]).collect::<Vec<_>>());
        let report = serde_json::json!({ "processed": processed, "duplicates": duplicates, "failed": failed });
        self.sql(&format!(
            "INSERT INTO idem_workers (instance, kind, name, host, pid, version, started_at, report) \
             VALUES (randomblob(16), 'worker', '{consumer}', '{host}', 4711, '2.14.0', {}, '{report}')",
            ago(Duration::from_secs(90_000))
        ))
        .await;
    }

    /// Writes an outbox with messages that wait, and two that the broker refuses, whose relay was seen so long ago.
    async fn outbox(&self, name: &str, waiting: u64, relay: Duration) {
        let (seen, died) = (ago(relay), ago(Duration::from_secs(3_600)));
        self.sql(&format!(
            "INSERT INTO idem_outboxes (name, namespace, relay_seen_at) VALUES ('{name}', randomblob(16), {seen})"
        ))
        .await;
        let content = "destination, key, envelope, payload";
        let values = "'orders.paid', CAST('order-7' AS BLOB), CAST('{\"headers\":[]}' AS BLOB), CAST('{}' AS BLOB)";
        for _ in 0..waiting {
            self.sql(&format!(
                "INSERT INTO idem_outbox_messages (outbox_id, message_id, created_at, {content}) \
                 SELECT id, randomblob(16), {seen}, {values} FROM idem_outboxes WHERE name = '{name}'"
            ))
            .await;
        }
        for _ in 0..2 {
            self.sql(&format!(
                "INSERT INTO idem_outbox_dead (outbox_id, message_id, created_at, died_at, attempts, error, {content}) \
                 SELECT id, randomblob(16), {died}, {died}, 10, 'no queue takes it', {values} FROM idem_outboxes WHERE name = '{name}'"
            ))
            .await;
        }
    }
}

/// The time that was so long ago, in milliseconds since 1970.
fn ago(age: Duration) -> i64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() - age;
    i64::try_from(time.as_millis()).unwrap()
}
