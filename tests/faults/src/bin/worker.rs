//! A worker in a separate process, which a test starts and a handler may end.

use std::path::Path;
use std::time::Duration;

use idem::{Source, Store, Worker};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq, Sqs};
use idem_faults::{Setting, Stage, World};
use idem_test::harness::TracedProcess;
use idem_test::trace::Trace;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let setting = Setting::from_env();
    match setting.broker.as_str() {
        RabbitMq::NAME => of::<RabbitMq>(&setting).await,
        Nats::NAME => of::<Nats>(&setting).await,
        Kafka::NAME => of::<Kafka>(&setting).await,
        Sqs::NAME => of::<Sqs>(&setting).await,
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
    if setting.traces.is_empty() {
        let worker = world.start(&store, source, |worker| quick(setting.mode.tune(worker)));
        return Ok(worker.end_at(idem::shutdown_signal()).await?);
    }
    let id = std::process::id();
    let trace = Trace::in_file(Path::new(&setting.traces).join(id.to_string()), format!("{id}."))?;
    let process = TracedProcess::new(&trace);
    let worker = world.start_traced(&process, &store, source, setting.mode, quick);
    worker.end_at(idem::shutdown_signal()).await?;
    process.end();
    Ok(())
}

fn quick<S: Store, Src: Source>(worker: Worker<S, Src, Stage>) -> Worker<S, Src, Stage> {
    worker.lease_duration(Duration::from_millis(500)).poll_interval(Duration::from_millis(100))
}
