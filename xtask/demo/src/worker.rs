//! The processes of the runs: workers and relays as a user writes them, with short timeouts and instrumentation.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::ValueEnum;
use idem::codec::Json;
use idem::handler::WithHandlers;
use idem::{Observed, Outcome, Postgres, Relay, RetryPolicy, Source, Worker};
use idem_brokers::Broker;
use idem_test::{Tapped, TappedSink};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use crate::campaign::Mode;
use crate::external::handlers::{Bank, Payer, called, naive};
use crate::handler::{pay, pay_many};
use crate::journal::{Event, Journal};
use crate::processes::DATABASE;
use crate::relay::TAKEN;
use crate::relay::handlers::{stage, take};
use crate::tables::SCHEMA;
use crate::watched::{Watch, id};

/// The name of the queue, stream or topic. Only one demo runs on a database at a time, so the name need not be unique.
pub(crate) const NAME: &str = "idem-demo";
/// The name of the consumer.
pub(crate) const CONSUMER: &str = "demo";
/// The maximum number of attempts. Three would suffice for messages that fail twice, but a handler that is late on a
/// busy machine may also use up an attempt.
const ATTEMPTS: u32 = 4;
/// How many batches a worker runs concurrently.
const BATCHES: usize = 4;
/// How long a starting worker waits for servers that are being restarted.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// A worker whose handlers may be careless.
    Pay,
    /// A worker that pays at a provider by external calls.
    Call,
    /// A worker that pays at a provider in its transactions.
    Naive,
    /// The worker that stages a message for each event.
    Stage,
    /// A relay.
    Relay,
    /// The worker that takes what the relays publish.
    Take,
}

impl Role {
    /// Returns its name in arguments and files.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Runs until its standard input ends.
pub(crate) async fn run<B: Broker>(role: Role, journal: &Path, mode: Mode, provider: Option<SocketAddr>) -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let read = |name| std::env::var(name).with_context(|| format!("{name} is not set: run cargo xtask demo"));
    let (database, broker) = (read(DATABASE)?, read(B::VARIABLE)?);
    let dir = journal.parent().map(Path::to_owned).unwrap_or_default();
    let watch = &Watch::new(Journal::open(journal)?, dir, B::RELAYED);
    let over = end_of_input();
    patiently(watch, || async {
        let mut over = over.clone();
        let ended = async move { _ = over.wait_for(|over| *over).await };
        let (schema, name) = if role == Role::Take { (TAKEN, B::RELAYED) } else { (SCHEMA, NAME) };
        let store = Postgres::options(&database).schema(schema).connections(40).connect().await?;
        if role == Role::Relay {
            let sink = TappedSink::new(B::recording_sink(&broker, B::RELAYED).await?, watch.clone());
            return Ok(relay(store, sink).run_until(ended).await?);
        }
        let source = Tapped::new(B::source(&broker, name).await?, watch.clone());
        if let Some(address) = provider {
            let worker = Worker::new(CONSUMER, store, source);
            let worker = worker.state(Payer { watch: watch.clone(), bank: Bank(address) });
            let worker = match role {
                Role::Naive => tune(worker.handler::<naive>(), mode, watch),
                _ => tune(worker.handler::<called>(), mode, watch),
            };
            return Ok(worker.run_until(ended).await?);
        }
        let worker =
            Worker::new(if role == Role::Take { "taker" } else { CONSUMER }, store, source).state(watch.clone());
        let worker = match role {
            Role::Take => tune(worker.handler::<take>(), Mode { inbox: false, batch: 1, whole: false }, watch),
            Role::Stage => tune(worker.handler::<stage>(), mode, watch),
            _ if mode.whole => tune(worker.handler::<pay_many>(), mode, watch),
            _ => tune(worker.handler::<pay>(), mode, watch),
        };
        Ok(worker.run_until(ended).await?)
    })
    .await
}

/// Sets short timeouts, so that what takes minutes in production takes seconds here.
fn tune<Src: Source, St>(
    worker: Worker<Postgres, Src, St, Json, WithHandlers>,
    mode: Mode,
    watch: &Watch,
) -> Worker<Postgres, Src, St, Json, WithHandlers> {
    let journal = watch.journal.clone();
    let worker = worker
        .retry(RetryPolicy::new().max_attempts(ATTEMPTS).min_delay(Duration::from_millis(100)).factor(2.0))
        .handler_timeout(Duration::from_secs(2))
        .lease_duration(Duration::from_secs(1))
        .poll_interval(Duration::from_millis(200))
        .observe(move |Observed { delivery, outcome, .. }| {
            let event = match outcome {
                // It is observed after the ack, and may have begun to run from the inbox before that.
                Outcome::Scheduled { attempt: 0, .. } => return,
                Outcome::Duplicate => Event::Duplicate,
                _ => Event::Written,
            };
            journal.note(event, id(delivery));
        });
    let worker = if mode.inbox { worker.inbox() } else { worker };
    if mode.batch > 1 { worker.concurrency(BATCHES).batch(mode.batch.into()) } else { worker }
}

/// Retries for a minute if the worker cannot start: the servers are being restarted.
async fn patiently<F: Future<Output = Result<()>>>(watch: &Watch, run: impl Fn() -> F) -> Result<()> {
    let start = Instant::now();
    loop {
        match run().await {
            Err(error) if !watch.opened.load(Ordering::SeqCst) && start.elapsed() < PATIENCE => {
                eprintln!("cannot begin: {error:#}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            ended => return ended,
        }
    }
}

/// Becomes true once standard input ends: the demo lets the worker go, or has ended.
pub(crate) fn end_of_input() -> watch::Receiver<bool> {
    let (over, ended) = watch::channel(false);
    tokio::spawn(async move {
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
        over.send_replace(true);
    });
    ended
}

/// Sets short times for a relay.
fn relay<K: idem::adapter::Sink>(store: Postgres, sink: K) -> Relay<Postgres, K> {
    Relay::new(CONSUMER, store, sink)
        .lease_duration(Duration::from_secs(1))
        .retry(RetryPolicy::new().max_attempts(10).min_delay(Duration::from_millis(100)).factor(2.0))
}
