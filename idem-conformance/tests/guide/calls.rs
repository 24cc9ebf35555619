//! The SQL of the guide on external calls, run as an operator runs it.

use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::operator::{Filter, Operator, Page};
use idem_core::store::{
    CallAnswer, CallResult, ClaimState, Consumers, FetchFor, FetchLimit, HandlerId, Identity, InboxRows, NewRow, Row,
    RowKind, RowResult, Transactions,
};
use idem_core::{Delivery, Fingerprint, Key, Reason};
use uuid::Uuid;

use crate::LONG;
use crate::postgres::PostgresWorld;
use crate::sqlite::SqliteWorld;

const GUIDE: &str = include_str!("../../../src/docs/external_recovery.md");

/// Two handlers with a message that has not been called, one whose call is in doubt, and one that has its answer.
struct Shop<W: World> {
    world: W,
    store: W::Store,
    handlers: Vec<HandlerId>,
}

impl<W: World> Shop<W> {
    async fn new(world: W) -> Self {
        let store = world.store(Setup::default()).await.unwrap();
        let handlers = store.register("shop", &["order_placed", "other"]).await.unwrap();
        let shop = Self { world, store, handlers };
        for &handler in &shop.handlers {
            for key in ["answered", "in-doubt", "unused"] {
                shop.store(handler, key).await;
                let caller = FetchFor { handler, lease: LONG, call: "charge".into() };
                if key == "unused" {
                    continue;
                }
                let one = FetchLimit::rows(RowKind::Calling, 1);
                let row = shop.store.fetch(&[caller], one, Uuid::new_v4()).await.unwrap().rows.remove(0);
                if key == "answered" {
                    let answered = CallResult::answered(CallAnswer::new("{}"));
                    assert!(shop.store.record_result(&row, &RowResult::Called(answered.clone())).await.unwrap());
                }
            }
        }
        shop
    }

    async fn store(&self, handler: HandlerId, key: &str) {
        let identity = Identity { handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::of(key.as_bytes()) };
        let mut txn = self.store.begin(LONG).await.unwrap();
        assert!(self.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap()[0].is_new());
        let delivery = Delivery::new("orders", "{}");
        let row = NewRow::new(&identity, &delivery, Ok(Duration::ZERO)).with_call(Uuid::new_v4());
        self.store.insert(&mut txn, &[row]).await.unwrap();
        self.store.commit(txn).await;
    }

    /// Runs the statement of the guide that has this number, as the guide says for this database.
    async fn run(&self, number: usize, is_sqlite: bool) {
        let blocks = GUIDE.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
        let sql = blocks.filter(|sql| sql.contains("UPDATE idem_store.inbox_messages")).nth(number).unwrap();
        let sql = sql.replace("idem_store.", &self.world.own(""));
        let sql = match is_sqlite {
            true => sql
                .replace("now()", "CAST(unixepoch('subsec') * 1000 AS INTEGER)")
                .replace("gen_random_uuid()", "randomblob(16)"),
            false => sql,
        };
        self.world.run(&sql).await;
    }

    /// The dead rows; each can be resolved.
    async fn dead(&self) -> Vec<String> {
        let rows =
            Operator::new(&self.store).consumer("shop").list(&Filter::new(), Page::default()).await.unwrap().rows;
        let dead = |row: &Row| {
            assert_eq!(row.reason, Some(Reason::Unresolved));
            assert!(row.provider_key.is_some(), "it has no key by which it is resolved");
            shown(row)
        };
        let mut dead: Vec<_> = rows.iter().map(dead).collect();
        dead.sort();
        dead
    }
}

fn shown(row: &Row) -> String {
    format!("{} {}", row.handler, row.identity.key)
}

async fn changes_the_messages_that_it_names<W: World>(make: impl AsyncFn() -> Option<W>, is_sqlite: bool) {
    // After a restored backup.
    let Some(world) = make().await else { return };
    let shop = Shop::new(world).await;
    shop.run(0, is_sqlite).await;
    assert_eq!(shop.dead().await, ["order_placed unused"]);

    // If the version that has the call does not come back.
    let Some(world) = make().await else { return };
    let shop = Shop::new(world).await;
    shop.run(1, is_sqlite).await;
    assert_eq!(shop.dead().await, ["order_placed answered", "order_placed in-doubt"]);
}

#[tokio::test]
async fn the_statements_for_calls_change_what_the_guide_says_on_postgres() {
    changes_the_messages_that_it_names(PostgresWorld::make, false).await;
}

#[tokio::test]
async fn the_statements_for_calls_change_what_the_guide_says_on_sqlite() {
    changes_the_messages_that_it_names(SqliteWorld::make, true).await;
}
