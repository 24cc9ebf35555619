//! Publishes the messages of a soak: as many as the worker can take, then half of that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use idem_brokers::Broker as Client;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::messages::messages;

/// The most messages that are published at once.
const WINDOW: u64 = 500;

/// How many messages wait for the worker while its limit is measured.
const BACKLOG: u64 = 5_000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// So many that the worker always has some.
    Backlog,
    /// Messages per second, without their copies.
    Rate(f64),
    Stopped,
}

/// Publishes until the pace is `Stopped`. `published` is the number of messages so far, without their copies.
pub(crate) async fn run<B: Client>(
    client: &B,
    mut pace: watch::Receiver<Pace>,
    published: &AtomicU64,
    processed: impl Fn() -> u64,
) -> Result<()> {
    loop {
        let now = *pace.borrow_and_update();
        let (began, first) = (Instant::now(), published.load(Relaxed));
        while !pace.has_changed()? {
            let done = published.load(Relaxed);
            let wanted = match now {
                Pace::Backlog => processed() + BACKLOG,
                Pace::Rate(rate) => first + (rate * began.elapsed().as_secs_f64()) as u64,
                Pace::Stopped => return Ok(()),
            };
            let next = wanted.clamp(done, done + WINDOW);
            client.publish(&messages(done..next)?).await?;
            published.store(next, Relaxed);
            if next == wanted {
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
}
