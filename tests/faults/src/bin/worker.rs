//! A worker in a process of its own, which a test starts, and a handler may end.

use std::time::Duration;

use idem::RabbitMq;
use idem_faults::World;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let [database, broker, schema, queue] =
        ["DATABASE_URL", "AMQP_URL", "FAULTS_SCHEMA", "FAULTS_QUEUE"].map(|name| std::env::var(name).unwrap());
    let world = World::existing(&database, &schema);
    let store = world.options().verify_only().connect().await?;
    let orders = RabbitMq::connect(broker).await?.queue(queue).await?;
    let worker = world.start(&store, orders, |worker| {
        worker.in_flight(16).lease(Duration::from_millis(500)).poll(Duration::from_millis(100))
    });
    worker.end().await?;
    Ok(())
}
