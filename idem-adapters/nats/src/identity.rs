//! Whether a consumer is still the one that delivered the messages.
//!
//! An ack names a message by its number in the stream, and the server compares nothing else. In a recreated stream the
//! number refers to another message, which an old ack would settle before it was handled. Nothing reports the end of a
//! consumer while no pull waits, so acks are sent only for a consumer that was seen a moment ago. And a worker that has
//! run before does not pull from a new stream at once, so that the acks of that moment find nothing to settle.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use idem_core::BoxError;
use tokio::time::Instant;

use crate::connection::{Connection, Lost};

/// How long an ack may rely on an earlier response about the consumer.
const RECENT: Duration = Duration::from_secs(1);

/// How long a request about the consumer may have been sent before its ack is sent, however slow its response.
const SLOWEST: Duration = Duration::from_secs(3);

/// The age of a stream from which on it is pulled from: [`SLOWEST`], and a margin for acks that are still on their way.
const SETTLED: Duration = Duration::from_secs(5);

/// The consumer of a subscription, known by the time of its creation.
pub(crate) struct Identity {
    stream: Arc<str>,
    consumer: String,
    created: SystemTime,
    /// When the last request was sent whose response showed this consumer. Locked during a request, so that all acks
    /// that wait share one.
    seen: tokio::sync::Mutex<Instant>,
    /// Responses to requests sent before this prove nothing.
    doubted: Mutex<Instant>,
    replaced: AtomicBool,
}

impl Identity {
    /// Describes the consumer that was found by a request sent at `seen`.
    pub(crate) fn new(stream: Arc<str>, consumer: String, created: SystemTime, seen: Instant) -> Self {
        let (seen, doubted) = (tokio::sync::Mutex::new(seen), Mutex::new(seen));
        Self { stream, consumer, created, seen, doubted, replaced: AtomicBool::new(false) }
    }

    /// Returns once it is certain that the consumer has not been another one until a moment ago. Asks the server if the
    /// last response is too old. Ends the connection with [`Lost`] if it is another one: the next subscription then
    /// decides what its deliveries are. Cancel safe: the next caller asks again.
    pub(crate) async fn confirm(&self, connection: &Connection) -> Result<(), BoxError> {
        let came = Instant::now();
        // Compared with the time at which the ack came: a response that takes longer than that is recent all the same,
        // or a slow server would be asked again and again.
        let is_recent = |seen: Instant| seen + RECENT > came && seen.elapsed() < SLOWEST && seen >= self.doubted();
        let confirmed = async {
            let mut seen = self.seen.lock().await;
            while !is_recent(*seen) {
                *seen = self.ask(connection).await?;
            }
            Ok(())
        };
        tokio::select! {
            biased;
            confirmed = confirmed => confirmed,
            () = connection.lost.cancelled() => Err(Lost.into()),
        }
    }

    /// Records a sign of another consumer.
    pub(crate) fn doubt(&self) {
        *self.doubted.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns whether there is another consumer of this name by now.
    pub(crate) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Asks the server, and returns when the request was sent.
    async fn ask(&self, connection: &Connection) -> Result<Instant, BoxError> {
        let asked = Instant::now();
        let stream = connection.jetstream().get_stream_no_info(&*self.stream).await?;
        let info = stream.consumer_info(&self.consumer).await?;
        if SystemTime::from(info.created) == self.created {
            return Ok(asked);
        }
        self.replaced.store(true, Ordering::Relaxed);
        connection.lost.cancel();
        Err(Lost.into())
    }

    fn doubted(&self) -> Instant {
        *self.doubted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how long to wait until a stream is pulled from that was created at `created`. By the local clock, because
/// servers older than 2.10 do not tell their time.
pub(crate) fn rest(created: SystemTime) -> Duration {
    SETTLED.saturating_sub(created.elapsed().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stream_rests_and_an_old_one_does_not() {
        let now = SystemTime::now();
        assert_eq!(rest(now + SETTLED), SETTLED, "the clocks differ");
        assert!(rest(now) > SETTLED / 2);
        assert_eq!(rest(now - SETTLED), Duration::ZERO);
    }
}
