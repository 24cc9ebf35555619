//! Order per key on RabbitMQ: the steps of one order run one after another, and other orders run concurrently with them.
//!
//! The key chooses one of four queues with a single active consumer. Of several such processes, the one that subscribed first
//! gets all messages, and the next one goes on when it ends. To share the queues (RabbitMQ 4.0 or later), each process gives
//! some of them `.consumer_argument("x-priority", 1)`.
//!
//! `cargo run --example ordering_rabbitmq --features rabbitmq`, after `eval "$(cargo xtask services up)"`.

use std::time::Duration;

use idem::DeliveryOrder;
use idem::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

const QUEUES: i64 = 4;
const ORDERS: i64 = 6;
const STEPS: [&str; 3] = ["placed", "paid", "shipped"];

/// All producers have this rule. Before it changes, the queues must be empty: an order must not be in two of them.
fn queue_of(order_id: i64) -> String {
    format!("order-steps-{}", order_id.rem_euclid(QUEUES))
}

#[derive(Serialize, Deserialize)]
struct Step {
    order_id: i64,
    name: String,
}

#[idempotent(key = message_id, name = "step")]
async fn step(step: Step, delivery: Delivery, tx: &mut SqliteConnection) -> Result<(), BoxError> {
    sqlx::query("INSERT INTO history VALUES (?, ?)").bind(step.order_id).bind(&step.name).execute(tx).await?;
    if step.name == "paid" && delivery.attempt() == 1 {
        // The next steps of this queue wait for it.
        return Err("the bank does not answer".into());
    }
    println!("order {} {}", step.order_id, step.name);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let rabbit = RabbitMq::connect(std::env::var("AMQP_URL")?).await?;
    let declare = |n| rabbit.declare(queue_of(n)).argument("x-single-active-consumer", true);
    let mut orders = declare(0).await?;
    for n in 1..QUEUES {
        orders = orders.and(declare(n).await?)?;
    }
    let directory = tempfile::tempdir()?;
    let url = format!("sqlite://{}", directory.path().join("shop.db").display());
    let (store, mut db) = (Sqlite::connect(&url).await?, SqliteConnection::connect(&url).await?);
    sqlx::raw_sql("CREATE TABLE history (order_id INTEGER, step TEXT)").execute(&mut db).await?;
    let mut tx = db.begin().await?;
    for name in STEPS {
        for order_id in 0..ORDERS {
            let step = Outgoing::json(queue_of(order_id), &Step { order_id, name: name.to_owned() })?;
            store.outbox("shop").stage(&mut tx, [step.key(order_id)]).await?;
        }
    }
    tx.commit().await?;
    // The routing key of the default exchange is the name of a queue.
    let relay = Relay::new("shop", store.clone(), rabbit.exchange(""));
    let retry = RetryPolicy::new().min_delay(Duration::from_millis(50)).max_delay(Duration::from_millis(200));
    let worker = Worker::new("shop", store, orders).handler::<step>().order(DeliveryOrder::Queue).retry(retry);
    let done = async {
        let count = "SELECT count(*) FROM history";
        while sqlx::query_scalar(count).fetch_one(&mut db).await.is_ok_and(|steps: i64| steps < 3 * ORDERS) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        ended = relay.run_until(std::future::pending()) => ended?,
        ended = worker.poll_interval(Duration::from_millis(50)).run_until(done) => ended?,
    }
    for order_id in 0..ORDERS {
        let steps = sqlx::query_scalar("SELECT step FROM history WHERE order_id = ? ORDER BY rowid").bind(order_id);
        assert_eq!(steps.fetch_all(&mut db).await? as Vec<String>, STEPS);
    }
    Ok(())
}
