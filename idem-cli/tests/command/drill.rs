//! Three incidents. Each is found and cured by at most three commands of the guide on call, while real workers run.

use idem::prelude::*;
use idem_test::Broker;

use crate::shop::Event;
use crate::world::{OnPostgres, OnSqlite, Running};

const DEAD: &str = "SELECT count(*) FROM {inbox_messages} WHERE state = 'dead'";

/// The drill on one database; `$missing` is in its error about a table that is not there.
macro_rules! drill {
    ($module:ident, $world:ty, $missing:literal) => {
        mod $module {
            use super::*;
            use crate::shop::$module::{invoice, order_paid, ship_each_event, ship_once_an_order};

            #[tokio::test(flavor = "multi_thread")]
            async fn a_poisonous_deploy_is_replayed_by_its_cause() {
                let Some(mut world) = <$world>::new().await else { return };
                let broker = Broker::new();
                for id in 1..=500 {
                    broker.publish_json("orders", &Event::new(id, id)).unwrap();
                }
                let worker = Worker::new("shop", world.store.clone(), broker.queue("orders"));
                let worker = worker.retry(RetryPolicy::new().max_attempts(1)).handler::<order_paid>();
                let worker = Running::start(|shutdown| worker.run_until(shutdown));
                world.until(DEAD, 500).await;

                world.idem(&["status"]).await.check(10, &["500", "needs: "]);
                let grouped = world.idem(&["dead", "group"]).await;
                grouped.check(0, &["300\tshop/order_paid\texhausted\t", "200\tshop/order_paid\texhausted\t", $missing]);
                world.execute("CREATE TABLE orders (id bigint PRIMARY KEY)").await;
                let replayed = world.idem(&["dead", "replay", "--handler", "order_paid", "--error", $missing]).await;
                replayed.check(0, &["due ", "300"]);

                world.until("SELECT count(*) FROM orders", 300).await;
                world.until("SELECT count(*) FROM {inbox_messages} WHERE state <> 'dead'", 0).await;
                assert_eq!(world.number(DEAD).await, 200);
                assert_eq!(world.number("SELECT count(DISTINCT command) FROM {operations}").await, 1);
                assert_eq!(world.number("SELECT count(*) FROM {operations} WHERE actor = 'anna'").await, 300);
                worker.stop().await;
                world.end().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn a_relay_that_is_gone_is_named() {
                let Some(mut world) = <$world>::new().await else { return };
                let broker = Broker::new();
                for id in 1..=40 {
                    broker.publish_json("orders", &Event::new(id, id)).unwrap();
                }
                let worker = Worker::new("shop", world.store.clone(), broker.queue("orders")).handler::<invoice>();
                let worker = Running::start(|shutdown| worker.run_until(shutdown));
                world.until("SELECT count(*) FROM {outbox_messages}", 40).await;

                world.idem(&["status"]).await.check(10, &["40", "needs: ", "shop"]);
                world.idem(&["doctor"]).await.check(10, &["shop", "relay"]);
                let relay = Relay::new("shop", world.store.clone(), broker.clone());
                let relay = Running::start(|shutdown| relay.run_until(shutdown));
                world.until("SELECT count(*) FROM {outbox_messages}", 0).await;
                world.idem_until(&["status"], 0).await.check(0, &["nothing needs a person"]);
                relay.stop().await;
                worker.stop().await;
                world.end().await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn messages_under_the_key_of_their_entity_run_under_their_own_after_a_deploy() {
                let Some(mut world) = <$world>::new().await else { return };
                world.execute("CREATE TABLE shipments (event_id text)").await;
                let broker = Broker::new();
                for event in ["e1", "e2", "e3", "e4", "e5", "e6"] {
                    broker.publish_json("orders", &Event::new(event, 7)).unwrap();
                }
                let worker = Worker::new("shop", world.store.clone(), broker.queue("orders")).concurrency(1);
                let worker = worker.handler::<ship_once_an_order>();
                let worker = Running::start(|shutdown| worker.run_until(shutdown));
                world.until(DEAD, 5).await;
                let payload = world.folder.path().join("e2.json");
                std::fs::write(&payload, serde_json::to_vec(&Event::new("e2", 7)).unwrap()).unwrap();

                world.idem(&["dead", "group"]).await.check(0, &["5\tshop/ship\tconflict\t"]);
                let why = world.idem(&["why", "shop/ship", "7", "--payload", payload.to_str().unwrap()]).await;
                why.check(12, &["it would be a conflict"]);
                let replay = ["dead", "replay", "--handler", "shop/ship", "--reason", "conflict", "--new-keys"];

                // Too early: the old version finds the same conflicts again, and nothing is lost.
                world.idem(&replay).await.check(0, &["due           5"]);
                world.until(DEAD, 5).await;
                assert_eq!(world.number("SELECT count(*) FROM shipments").await, 1);
                worker.stop().await;

                let worker = Worker::new("shop", world.store.clone(), broker.queue("orders"));
                let worker = worker.handler::<ship_each_event>();
                let worker = Running::start(|shutdown| worker.run_until(shutdown));
                world.idem(&replay).await.check(0, &["due           5"]);
                world.until("SELECT count(*) FROM shipments", 6).await;
                world.until("SELECT count(*) FROM {inbox_messages}", 0).await;
                assert_eq!(world.number("SELECT count(DISTINCT event_id) FROM shipments").await, 6);
                let processed = "SELECT count(*) FROM {processed_messages} WHERE processed_at IS NOT NULL";
                assert_eq!(world.number(processed).await, 6, "that of the order, and one for each later event");
                world.idem(&["why", "shop/ship", "e2"]).await.check(11, &["it would be a duplicate"]);
                worker.stop().await;
                world.end().await;
            }
        }
    };
}
drill!(postgres, OnPostgres, r#"relation "orders""#);
drill!(sqlite, OnSqlite, "no such table: orders");
