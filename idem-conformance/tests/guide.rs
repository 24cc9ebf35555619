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
use idem_core::store::{ClaimState, Claims, CommitResult, HandlerId, Identity, InboxRows, NewRow, Transactions};
use idem_core::{Delivery, Fingerprint, HasConnection, Key, Latest, Reason};

use postgres::PostgresWorld;
use sqlite::SqliteWorld;

const GUIDE: &str = include_str!("../../src/docs/natural.md");
const LONG: Duration = Duration::from_secs(30);

/// A database with the tables of idem and of the application.
struct Shop<W: World> {
    world: W,
    store: W::Store,
    /// The first line of a statement for this database, where the guide has one for each.
    title: &'static str,
}

impl<W: World> Shop<W> {
    async fn new(world: W, title: &'static str) -> Self {
        let store = world.store(Setup::default()).await.unwrap();
        let orders = world.name("orders");
        world.run(&format!("CREATE TABLE {orders} (id BIGINT NOT NULL, version BIGINT NOT NULL)")).await;
        Self { world, store, title }
    }

    /// Runs the SQL of the guide that has this verb.
    async fn run(&self, verb: &str) {
        let blocks = GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
        let found: Vec<&str> = blocks.filter(|sql| sql.contains(&format!("{verb} idem_"))).collect();
        let sql = found.iter().find(|sql| sql.starts_with(self.title)).or(found.first()).unwrap();
        let orders = format!("{} AS o", self.world.name("orders"));
        let sql = sql.replace("idem_store.", &self.world.own("")).replace("orders AS o", &orders);
        self.world.run(&sql).await;
    }

    /// Advances the version of an order, as its handler does.
    async fn advance(&self, latest: &Latest, order: &str, version: i64) -> bool {
        let mut txn = self.store.begin_guarded(LONG).await.unwrap();
        let connection = <W::Store as HasConnection<W::Connection>>::connection(&mut txn);
        let advanced = W::advance(latest, connection, order, version).await.unwrap();
        self.commit(txn).await;
        advanced
    }

    async fn commit(&self, txn: <W::Store as Transactions>::Txn) {
        let committed = self.store.commit(txn).await;
        assert!(matches!(committed, CommitResult::Done), "{committed:?}");
    }

    /// Makes a claim, and with it a dead letter, or none.
    async fn claim(&self, handler: HandlerId, key: &str, state: ClaimState) {
        let identity = Identity { handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::of(key.as_bytes()) };
        let (mut txn, claimed) = self.store.begin_with_claim(LONG, &identity, state).await.unwrap();
        assert!(claimed.is_new());
        if state == ClaimState::Waiting {
            let delivery = Delivery::new("orders", "{}");
            let row = NewRow::new(&identity, &delivery, Err(Reason::Permanent));
            self.store.insert(&mut txn, &row).await.unwrap();
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

/// A release that takes `Latest` was rolled back after it had seen some versions, and comes again after others.
async fn fills_versions_that_are_missing_or_too_low<W: World>(shop: Shop<W>) {
    let orders = shop.world.name("orders");
    shop.world.run(&format!("INSERT INTO {orders} VALUES (7, 10), (8, 3), (9, 4)")).await;
    // The store was connected, and no worker has asked for the table.
    shop.run("INSERT INTO").await;
    assert_eq!(shop.rows("latest_versions", "order_changed").await, 0, "the handler is not registered");
    let latest = shop.store.latest_versions().await.unwrap();
    let handler = shop.store.register("search", &["order_changed"]).await.unwrap()[0];
    let latest = Latest::new(latest, handler);
    for (order, version) in [("7", 8), ("8", 5)] {
        assert!(shop.advance(&latest, order, version).await);
    }
    for _ in 0..2 {
        shop.run("INSERT INTO").await;
    }
    assert_eq!(shop.rows("latest_versions", "order_changed").await, 3);
    // A number is encoded as its characters, in a handler as in the statement.
    assert_eq!(Key::of(&7_i64).unwrap(), Key::of("7").unwrap());
    for (order, highest) in [("7", 10), ("8", 5), ("9", 4)] {
        assert!(!shop.advance(&latest, order, highest).await, "{order}");
        assert!(shop.advance(&latest, order, highest + 1).await, "{order}");
    }
}

/// And leaves the other handlers alone.
async fn forgets_what_a_handler_has_seen<W: World>(shop: Shop<W>) {
    let names = ["order_changed", "other"];
    let handlers = shop.store.register("search", &names).await.unwrap();
    for handler in handlers {
        let latest = Latest::new(shop.store.latest_versions().await.unwrap(), handler);
        assert!(shop.advance(&latest, "7", 1).await);
        shop.claim(handler, "processed", ClaimState::Processed).await;
        shop.claim(handler, "dead", ClaimState::Waiting).await;
    }
    shop.run("DELETE FROM").await;
    for (table, rows) in [("latest_versions", 1), ("processed_messages", 2), ("inbox_messages", 1)] {
        assert_eq!(shop.rows(table, names[0]).await, 0, "{table}");
        assert_eq!(shop.rows(table, names[1]).await, rows, "{table}");
    }
}

const POSTGRES: &str = "-- PostgreSQL";
const SQLITE: &str = "-- SQLite";

#[tokio::test]
async fn latest_versions_are_filled_on_postgres() {
    let Some(world) = PostgresWorld::make().await else { return };
    fills_versions_that_are_missing_or_too_low(Shop::new(world, POSTGRES).await).await;
}

#[tokio::test]
async fn latest_versions_are_filled_on_sqlite() {
    let Some(world) = SqliteWorld::make().await else { return };
    fills_versions_that_are_missing_or_too_low(Shop::new(world, SQLITE).await).await;
}

#[tokio::test]
async fn a_handler_is_forgotten_for_a_rebuild_on_postgres() {
    let Some(world) = PostgresWorld::make().await else { return };
    forgets_what_a_handler_has_seen(Shop::new(world, POSTGRES).await).await;
}

#[tokio::test]
async fn a_handler_is_forgotten_for_a_rebuild_on_sqlite() {
    let Some(world) = SqliteWorld::make().await else { return };
    forgets_what_a_handler_has_seen(Shop::new(world, SQLITE).await).await;
}
