//! The handlers of the tests, for each database.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct Event {
    pub(crate) event_id: String,
    pub(crate) order_id: i64,
}

impl Event {
    pub(crate) fn new(event_id: impl ToString, order_id: i64) -> Self {
        Self { event_id: event_id.to_string(), order_id }
    }
}

/// The handlers of a shop. Orders above 300 time out, and the others need the table `orders`.
macro_rules! shop {
    ($module:ident, $connection:ty) => {
        pub(crate) mod $module {
            use idem::prelude::*;

            use super::Event;

            type Connection = $connection;

            #[idempotent(key = "event_id", name = "order_paid")]
            pub(crate) async fn order_paid(event: Event, tx: &mut Connection) -> Result<(), BoxError> {
                if event.order_id > 300 {
                    return Err("timeout after 30 s".into());
                }
                sqlx::query("INSERT INTO orders VALUES ($1)").bind(event.order_id).execute(tx).await?;
                Ok(())
            }

            #[idempotent(key = "event_id", name = "invoice")]
            pub(crate) async fn invoice(event: Event, _: &mut Connection, outbox: Outbox) -> Result<(), BoxError> {
                outbox.publish("invoices", &event)?;
                Ok(())
            }

            #[idempotent(key = "order_id", name = "ship")]
            pub(crate) async fn ship_once_an_order(event: Event, tx: &mut Connection) -> Result<(), BoxError> {
                sqlx::query("INSERT INTO shipments VALUES ($1)").bind(event.event_id).execute(tx).await?;
                Ok(())
            }

            #[idempotent(key = "event_id", name = "ship")]
            pub(crate) async fn ship_each_event(event: Event, tx: &mut Connection) -> Result<(), BoxError> {
                sqlx::query("INSERT INTO shipments VALUES ($1)").bind(event.event_id).execute(tx).await?;
                Ok(())
            }
        }
    };
}
shop!(postgres, sqlx::PgConnection);
shop!(sqlite, sqlx::SqliteConnection);

/// Leaves what people are on call for: a shipment of order 8, one of order 7 and two conflicts with it, two dead letters of
/// `billing/order_paid`, and three invoices that no relay publishes.
macro_rules! night {
    ($world:expr, $handlers:ident) => {
        $world.execute("CREATE TABLE shipments (event_id text)").await;
        let broker = idem_test::Broker::new();
        let once = || idem::RetryPolicy::new().max_attempts(1);
        for (queue, orders) in [("shop", &[8, 7, 7, 7][..]), ("billing", &[301, 302][..]), ("office", &[1, 2, 3][..])] {
            for (event, order) in orders.iter().enumerate() {
                broker.publish_json(queue, &crate::shop::Event::new(format!("e{event}"), *order)).unwrap();
            }
        }
        let worker = |name: &str| idem::Worker::new(name, $world.store.clone(), broker.queue(name)).retry(once());
        let shop = worker("shop").concurrency(1).handler::<crate::shop::$handlers::ship_once_an_order>();
        let billing = worker("billing").handler::<crate::shop::$handlers::order_paid>();
        let office = worker("office").handler::<crate::shop::$handlers::invoice>();
        let all = idem::Workers::new().add(shop).add(billing).add(office);
        let all = crate::world::Running::start(|shutdown| all.run_until(shutdown));
        broker.idle().await;
        all.stop().await;
    };
}
pub(crate) use night;
