//! The process that is killed: a worker as a user writes it, with short waits, and watched.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use idem::{Outcome, Postgres, RetryPolicy, Worker};
use idem_brokers::Broker;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::Notify;

use crate::handler::pay;
use crate::journal::{Event, Journal};
use crate::tables::SCHEMA;
use crate::watched::{Watch, Watched, id};
use crate::{Mode, Servers};

/// The queue's, stream's or topic's name. There is one demo at a time on a database, so that it need not be unique.
pub(crate) const NAME: &str = "idem-demo";
/// The consumer's name.
pub(crate) const CONSUMER: &str = "demo";
/// How many attempts a message has: three would do for those that fail twice.
pub(crate) const ATTEMPTS: u32 = 4;

/// How many batches a worker runs at once, where it runs batches.
const BATCHES: usize = 4;

/// Runs until its standard input ends. A line there arms the failpoint.
pub(crate) async fn run<B: Broker>(journal: &Path, mode: Mode) -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let servers = Servers::of::<B>()?;
    let watch = Watch::new(Journal::open(journal)?);
    let (armed, journal) = (watch.armed.clone(), watch.journal.clone());

    let store = Postgres::options(&servers.database).schema(SCHEMA).connections(24).connect().await?;
    let source = Watched { source: B::source(&servers.broker, NAME).await?, watch: watch.clone() };
    let worker = Worker::new(CONSUMER, store, source)
        .state(watch)
        .handler::<pay>()
        .retry(RetryPolicy::new().attempts(ATTEMPTS).first(Duration::from_millis(200)).factor(2.0))
        .deadline(Duration::from_secs(10))
        .lease(Duration::from_secs(2))
        .poll(Duration::from_millis(200))
        .observe(move |delivery, outcome| {
            if *outcome == Outcome::Duplicate {
                journal.note(Event::Duplicate, id(delivery));
            }
        });
    let worker = if mode.inbox { worker.inbox() } else { worker };
    let worker = if mode.batch > 1 { worker.in_flight(BATCHES).batch(mode.batch.into()) } else { worker };
    worker.run_until(orders(armed)).await?;
    Ok(())
}

/// Listens to the demo: a line arms the failpoint, the end of the input is the end of the work. The demo's death ends
/// the input as well.
async fn orders(armed: Arc<AtomicBool>) {
    let over = Arc::new(Notify::new());
    let ended = over.clone();
    tokio::spawn(async move {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(_)) = lines.next_line().await {
            armed.store(true, Ordering::SeqCst);
        }
        ended.notify_one();
    });
    over.notified().await;
}
