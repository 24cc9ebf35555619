//! A worker in a separate process, which a test starts and a handler may end.

use std::time::Duration;

use idem_brokers::{Broker, Kafka, Nats, RabbitMq};
use idem_faults::{Setting, World};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let setting = Setting::from_env();
    match setting.broker {
        RabbitMq::NAME => work::<RabbitMq>(&setting).await,
        Nats::NAME => work::<Nats>(&setting).await,
        Kafka::NAME => work::<Kafka>(&setting).await,
        other => anyhow::bail!("there is no broker {other}"),
    }
}

async fn work<B: Broker>(setting: &Setting) -> anyhow::Result<()> {
    let world = World::existing(&setting.database, &setting.schema);
    let store = world.options().connections(40).verify_only().connect().await?;
    let source = B::source(&setting.address, &setting.name).await?;
    let worker = world.start(&store, source, |worker| {
        setting.mode.tune(worker).lease_duration(Duration::from_millis(500)).poll_interval(Duration::from_millis(100))
    });
    Ok(worker.end().await?)
}
