//! Publishes the messages of a soak: as many as the worker can take, then half of that. Each can be made again from its number,
//! so that the publisher remembers none.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Result;
use idem_brokers::Broker as Client;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::message::OrderPaid;

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

/// How many messages a late copy comes after its original.
const LATE: u64 = 777;

/// Returns a message. Its key looks random, as most keys do.
fn message(number: u64) -> Result<Vec<u8>> {
    let mut id = [0; 16];
    id.copy_from_slice(&Sha256::digest(number.to_be_bytes())[..16]);
    Ok(serde_json::to_vec(&OrderPaid { event_id: Uuid::from_bytes(id), order_id: number as i64, amount: 4990 })?)
}

/// Returns what is published for these numbers: each message, and a copy of a fifth of them. Half of the copies come
/// right behind their original, while it runs, and the other half when it is processed.
pub(crate) fn messages(numbers: std::ops::Range<u64>) -> Result<Vec<Vec<u8>>> {
    numbers.flat_map(published).map(message).collect()
}

fn published(number: u64) -> impl Iterator<Item = u64> {
    let now = number.is_multiple_of(10).then_some(number);
    let late = number.checked_sub(LATE).filter(|late| late % 10 == 5);
    std::iter::once(number).chain(now).chain(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifth_of_the_messages_comes_twice() {
        let all: Vec<u64> = (0..100_000).flat_map(published).collect();
        // The last late copies are still to come.
        assert!((119_900..=120_000).contains(&all.len()), "{}", all.len());
        assert_eq!(all.iter().filter(|number| **number == 10).count(), 2);
        assert_eq!(all.iter().filter(|number| **number == 15).count(), 2);
        assert_eq!(all.iter().filter(|number| **number == 11).count(), 1);
    }

    #[test]
    fn a_copy_is_the_same_message() {
        assert_eq!(message(7).unwrap(), message(7).unwrap());
        assert_ne!(message(7).unwrap(), message(8).unwrap());
    }
}
