//! The processes between the events and what becomes of them.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use idem::{Postgres, Relay, RetryPolicy, Worker};
use idem_brokers::Broker;
use idem_test::Tapped;
use tokio::sync::watch;

use super::handlers::{RELAYED, stage, take};
use super::rows::TAKEN;
use super::watched::WatchedSink;
use crate::journal::Journal;
use crate::mode::Mode;
use crate::servers::DATABASE;
use crate::tables::SCHEMA;
use crate::watched::Watch;
use crate::worker::{CONSUMER, NAME, end_of_input, patiently, tune};

/// A kind of process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Link {
    /// The worker that stages a message for each event.
    Stage,
    /// A relay, which is killed.
    Relay,
    /// The worker that takes what the relays publish.
    Take,
}

impl Link {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Relay => "relay",
            Self::Take => "take",
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Runs one of them until its standard input ends.
pub(crate) async fn run<B: Broker>(link: Link, journal: &Path, mode: Mode) -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let read = |name| std::env::var(name).with_context(|| format!("{name} is not set: run cargo xtask demo"));
    let (database, broker) = (read(DATABASE)?, read(B::VARIABLE)?);
    let dir = journal.parent().map(Path::to_owned).unwrap_or_default();
    let watch = Watch::new(Journal::open(journal)?, dir);
    let over = end_of_input();
    patiently(&watch, || async {
        let ended = ended(over.clone());
        match link {
            Link::Stage => {
                let (store, source) = (store(&database, SCHEMA).await?, B::source(&broker, NAME).await?);
                let worker = Worker::new(CONSUMER, store, Tapped::new(source, watch.clone())).state(watch.clone());
                tune(worker.handler::<stage>(), mode, &watch).run_until(ended).await?;
            }
            Link::Relay => {
                let (store, sink) = (store(&database, SCHEMA).await?, B::recording_sink(&broker, RELAYED).await?);
                relay(store, WatchedSink { sink, watch: watch.clone() }).run_until(ended).await?;
            }
            Link::Take => {
                let (store, source) = (store(&database, TAKEN).await?, B::source(&broker, RELAYED).await?);
                let worker = Worker::new("taker", store, Tapped::new(source, watch.clone())).state(watch.clone());
                let single = Mode { inbox: false, batch: 1, whole: false };
                tune(worker.handler::<take>(), single, &watch).run_until(ended).await?;
            }
        }
        Ok(())
    })
    .await
}

async fn ended(mut over: watch::Receiver<bool>) {
    _ = over.wait_for(|over| *over).await;
}

async fn store(database: &str, schema: &str) -> Result<Postgres> {
    Ok(Postgres::options(database).schema(schema).connections(40).connect().await?)
}

/// Sets short times, so that what takes a minute in production takes seconds here.
fn relay<K: idem::adapter::Sink>(store: Postgres, sink: K) -> Relay<Postgres, K> {
    Relay::new(CONSUMER, store, sink)
        .lease_duration(Duration::from_secs(1))
        .retry(RetryPolicy::new().max_attempts(10).min_delay(Duration::from_millis(100)).factor(2.0))
}
