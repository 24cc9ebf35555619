//! Natural handlers of a batch whose COMMIT the database does not refuse, because its trigger was turned off meanwhile.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::store::{Filter, Page};
use idem_core::{
    BoxError, Codec, DecodeError, Delivery, Handler, Inbox, Json, Key, KeyError, Outbox, Reason, State, Worker,
};
use idem_test::{Broker, Publication};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::world::PostgresWorld;

#[derive(Serialize, Deserialize)]
struct Changed {
    id: String,
    end: End,
}

/// How the first run of a message ends.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum End {
    Ok,
    Commit,
}

#[derive(Clone)]
struct Announced {
    table: String,
    /// The statement by which a handler turns the trigger off.
    off: &'static str,
}

/// Does something only for a message that has no row yet.
struct Announce;

impl Handler for Announce {
    const NAME: &'static str = "announce";
    const NATURAL: bool = true;

    type Message = Changed;
    type Input = Changed;
    type Params = (State<Announced>, Outbox);
    type Connection = PgConnection;

    fn key(changed: &Changed, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&changed.id)
    }

    async fn handle(
        changed: Changed,
        (State(announced), outbox): Self::Params,
        tx: &mut PgConnection,
    ) -> Result<(), BoxError> {
        let insert = format!("INSERT INTO {} (id) VALUES ($1) ON CONFLICT DO NOTHING", announced.table);
        let inserted = sqlx::query(AssertSqlSafe(insert)).bind(&changed.id).execute(&mut *tx).await?;
        if inserted.rows_affected() == 0 {
            return Ok(());
        }
        outbox.publish("changed", &changed.id)?;
        if changed.end != End::Ok {
            sqlx::raw_sql(AssertSqlSafe(format!("{}; COMMIT", announced.off))).execute(tx).await?;
        }
        Ok(())
    }
}

/// JSON. Before it decodes a message for the second time, it has to prepare.
#[derive(Default)]
struct Forgetful(Mutex<BTreeMap<Vec<u8>, usize>>);

impl Codec<Changed> for Forgetful {
    fn decode(&self, delivery: &Delivery) -> Result<Changed, DecodeError> {
        let mut all = self.0.lock().unwrap();
        let times = all.entry(delivery.data().to_vec()).or_default();
        *times += 1;
        if *times == 2 {
            return Err(DecodeError::unprepared());
        }
        Ok(serde_json::from_slice(delivery.data())?)
    }
}

/// A second run would find its row and stage nothing, and nobody would know.
#[tokio::test]
async fn each_message_of_a_batch_that_a_handler_has_committed_is_dead() {
    let Some(world) = PostgresWorld::make().await else { return };
    all_are_dead(world, End::Commit, Json).await;
}

/// Each message waits for its codec before its failure is recorded. A batch that took it meanwhile would run it again.
#[tokio::test]
async fn a_message_whose_failure_is_not_recorded_yet_runs_in_no_batch() {
    let Some(world) = PostgresWorld::make().await else { return };
    all_are_dead(world, End::Commit, Forgetful::default()).await;
}

/// Runs a batch whose last message ends like this.
async fn all_are_dead(world: PostgresWorld, last: End, codec: impl Codec<Changed>) {
    let store = world.store(Setup::default()).await.unwrap();
    let (broker, count) = (Broker::new(), 3);
    let queue = broker.queue("changes");
    for n in 0..count {
        let changed = Changed { id: n.to_string(), end: if n == count - 1 { last } else { End::Ok } };
        broker.publish("changes", Publication::json(&changed).unwrap());
    }
    let announced = world.name("announced");
    world.run(&format!("CREATE TABLE {announced} (id TEXT PRIMARY KEY)")).await;
    let announced = Announced { table: announced, off: "SET LOCAL session_replication_role = replica" };
    let table = world.own("processed_messages");
    // As `pg_restore --disable-triggers` leaves it.
    world.run(&format!("ALTER TABLE {table} ENABLE TRIGGER refuse_commit")).await;
    let worker =
        Worker::new("billing", store.clone(), queue.clone()).state(announced).codec(codec).handler::<Announce>();
    // It waits until the batch is full.
    let worker = worker.batch(count).linger(Duration::from_secs(20)).concurrency(1);
    let worker = worker.handler_timeout(Duration::from_secs(3));
    let settled = async {
        while queue.counts().acks < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), worker.run_until(settled)).await.unwrap().unwrap();
    let dead = Inbox::new(&store, "billing").list(&Filter::new(), Page::default()).await.unwrap();
    let mut found: Vec<_> = dead.iter().map(|row| (row.identity.key.to_string(), row.reason)).collect();
    found.sort_by(|one, next| one.0.cmp(&next.0));
    assert_eq!(found, ["0", "1", "2"].map(|id| (id.to_owned(), Some(Reason::Committed))));
    let claims = format!("SELECT count(*) FROM {table} WHERE processed_at IS NULL");
    assert_eq!(world.number(&claims).await, 3, "each dead letter has its claim");
}
