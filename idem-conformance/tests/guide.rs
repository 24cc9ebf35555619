//! The SQL of the guides on natural handlers, external calls and the outbox, run as an operator runs it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "guide/calls.rs"]
mod calls;
#[path = "guide/names.rs"]
mod names;
#[path = "worlds/postgres.rs"]
mod postgres;
#[path = "worlds/sqlite.rs"]
mod sqlite;

use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::store::{ClaimState, CommitResult, Consumers, HandlerId, Identity, InboxRows, NewRow, Transactions};
use idem_core::{Delivery, Fingerprint, Key, Reason};

use postgres::PostgresWorld;
use sqlite::SqliteWorld;

const GUIDE: &str = include_str!("../../src/docs/natural.md");
const LONG: Duration = Duration::from_secs(30);

/// A database with the tables of idem.
struct Shop<W: World> {
    world: W,
    store: W::Store,
}

impl<W: World> Shop<W> {
    async fn new(world: W) -> Self {
        let store = world.store(Setup::default()).await.unwrap();
        Self { world, store }
    }

    /// Runs the SQL of the guide.
    async fn run(&self) {
        let mut blocks = GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
        let sql = blocks.find(|sql| sql.contains("DELETE FROM idem_")).unwrap();
        self.world.run(&sql.replace("idem_store.", &self.world.own(""))).await;
    }

    async fn commit(&self, txn: <W::Store as Transactions>::Txn) {
        let committed = self.store.commit(txn).await;
        assert!(matches!(committed, CommitResult::Done), "{committed:?}");
    }

    /// Makes a claim, and with it a dead letter, or none.
    async fn claim(&self, handler: HandlerId, key: &str, state: ClaimState) {
        let identity = Identity { handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::of(key.as_bytes()) };
        let mut txn = self.store.begin(LONG).await.unwrap();
        let claimed = self.store.claim(&mut txn, &[&identity], state).await.unwrap();
        assert!(claimed[0].is_new());
        if state == ClaimState::Waiting {
            let delivery = Delivery::new("orders", "{}");
            let row = NewRow::new(&identity, &delivery, Err(Reason::Permanent));
            self.store.insert(&mut txn, &[row]).await.unwrap();
        }
        self.commit(txn).await;
    }

    /// How many rows of the table belong to the handler with this name.
    async fn rows(&self, table: &str, name: &str) -> i64 {
        let (table, handlers) = (self.world.own(table), self.world.own("handlers"));
        let of = format!("(SELECT id FROM {handlers} WHERE name = '{name}')");
        self.world.number(&format!("SELECT count(*) FROM {table} WHERE handler_id = {of}")).await
    }
}

/// The SQL forgets what one handler has seen, and leaves the other handlers alone.
async fn forgets_what_a_handler_has_seen<W: World>(shop: Shop<W>) {
    let names = ["order_changed", "other"];
    let handlers = shop.store.register("search", &names).await.unwrap();
    for handler in handlers {
        shop.claim(handler, "processed", ClaimState::Processed).await;
        shop.claim(handler, "dead", ClaimState::Waiting).await;
    }
    shop.run().await;
    for (table, rows) in [("processed_messages", 2), ("inbox_messages", 1)] {
        assert_eq!(shop.rows(table, names[0]).await, 0, "{table}");
        assert_eq!(shop.rows(table, names[1]).await, rows, "{table}");
    }
}

#[tokio::test]
async fn a_handler_is_forgotten_for_a_rebuild_on_postgres() {
    let Some(world) = PostgresWorld::make().await else { return };
    forgets_what_a_handler_has_seen(Shop::new(world).await).await;
}

#[tokio::test]
async fn a_handler_is_forgotten_for_a_rebuild_on_sqlite() {
    let Some(world) = SqliteWorld::make().await else { return };
    forgets_what_a_handler_has_seen(Shop::new(world).await).await;
}
