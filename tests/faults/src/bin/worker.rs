//! A worker in a separate process, which a test starts and a handler may end.

use std::time::Duration;

use idem::Source;
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};
use idem_faults::{Mode, Setting, World, limited};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let setting = Setting::from_env();
    match setting.broker {
        RabbitMq::NAME if setting.mode == Mode::Order => {
            work(&setting, limited(&setting.address, &setting.name).await?).await
        }
        RabbitMq::NAME => of::<RabbitMq>(&setting).await,
        Nats::NAME => of::<Nats>(&setting).await,
        Kafka::NAME => of::<Kafka>(&setting).await,
        other => anyhow::bail!("there is no broker {other}"),
    }
}

async fn of<B: Broker>(setting: &Setting) -> anyhow::Result<()> {
    work(setting, B::source(&setting.address, &setting.name).await?).await
}

/// Works until the process is asked to end.
async fn work(setting: &Setting, source: impl Source) -> anyhow::Result<()> {
    let world = World::existing(&setting.database, &setting.schema);
    let store = world.options().connections(40).verify_only().connect().await?;
    let worker = world.start(&store, source, |worker| {
        setting.mode.tune(worker).lease_duration(Duration::from_millis(500)).poll_interval(Duration::from_millis(100))
    });
    Ok(worker.end_at(idem::shutdown_signal()).await?)
}
