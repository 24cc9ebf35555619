//! Whether a consumer is still the one that delivered the messages.
//!
//! An ack names a message by its number in the stream, and the server compares nothing else. In a recreated stream the
//! number refers to another message, which an old ack would settle before it was handled. Nothing reports the end of a
//! consumer while no pull waits, so acks are sent only for a consumer that was seen a moment ago. And a worker that has
//! run before does not pull from a new stream at once, so that the acks of that moment find nothing to settle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use idem_core::BoxError;
use tokio::sync::Mutex;
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
    /// The time from which the next two count, in nanoseconds.
    zero: Instant,
    /// When the last request was sent whose response showed this consumer.
    seen: AtomicU64,
    /// Responses to requests sent before this prove nothing.
    doubted: AtomicU64,
    /// Locked during a request, so that all acks that wait share one.
    asking: Mutex<()>,
    replaced: AtomicBool,
}

impl Identity {
    /// Describes the consumer that was found by a request sent at `seen`.
    pub(crate) fn new(stream: Arc<str>, consumer: String, created: SystemTime, seen: Instant) -> Self {
        Self {
            stream,
            consumer,
            created,
            zero: seen,
            seen: AtomicU64::new(0),
            doubted: AtomicU64::new(0),
            asking: Mutex::new(()),
            replaced: AtomicBool::new(false),
        }
    }

    /// Returns whether [`confirm`](Self::confirm) would return at once. Each ack asks, so nothing is locked.
    pub(crate) fn is_certain(&self) -> bool {
        self.is_recent(Instant::now())
    }

    /// Returns once it is certain that the consumer has not been another one until a moment ago. Asks the server if the
    /// last response is too old. Ends the connection with [`Lost`] if it is another one: the next subscription then
    /// decides what its deliveries are. Cancel safe: the next caller asks again.
    pub(crate) async fn confirm(&self, connection: &Connection) -> Result<(), BoxError> {
        let came = Instant::now();
        let confirmed = async {
            let _asking = self.asking.lock().await;
            while !self.is_recent(came) {
                let asked = self.ask(connection).await?;
                self.seen.store(self.nanos(asked), Ordering::SeqCst);
            }
            Ok(())
        };
        tokio::select! {
            biased;
            confirmed = confirmed => confirmed,
            () = connection.lost.cancelled() => Err(Lost.into()),
        }
    }

    /// Returns whether the last response is recent enough for an ack that came at this time. A response that takes
    /// longer than that is recent all the same, or a slow server would be asked again and again.
    fn is_recent(&self, came: Instant) -> bool {
        let seen = self.seen.load(Ordering::SeqCst);
        let at = self.zero + Duration::from_nanos(seen);
        at + RECENT > came && at.elapsed() < SLOWEST && seen >= self.doubted.load(Ordering::SeqCst)
    }

    /// Records a sign of another consumer.
    pub(crate) fn doubt(&self) {
        self.doubted.store(self.nanos(Instant::now()), Ordering::SeqCst);
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

    fn nanos(&self, time: Instant) -> u64 {
        u64::try_from(time.saturating_duration_since(self.zero).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Returns how long to wait until a stream is pulled from that was created at `created`. By the local clock, because
/// servers older than 2.10 do not tell their time.
pub(crate) fn rest(created: SystemTime) -> Duration {
    SETTLED.saturating_sub(created.elapsed().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_ack_relies_on_a_response_for_a_second_unless_there_is_doubt() {
        let identity = Identity::new("orders".into(), "billing".to_owned(), SystemTime::now(), Instant::now());
        let moment = Duration::from_millis(1);
        advance(RECENT - moment).await;
        assert!(identity.is_certain());
        identity.doubt();
        assert!(!identity.is_certain());
        let came = Instant::now();
        identity.seen.store(identity.nanos(came), Ordering::SeqCst);
        assert!(identity.is_certain(), "it was asked for after the doubt");
        advance(RECENT).await;
        assert!(!identity.is_certain());
        advance(SLOWEST - RECENT - moment).await;
        assert!(identity.is_recent(came), "the response was slow");
        advance(moment).await;
        assert!(!identity.is_recent(came));
    }

    #[test]
    fn a_new_stream_rests_and_an_old_one_does_not() {
        let now = SystemTime::now();
        assert_eq!(rest(now + SETTLED), SETTLED, "the clocks differ");
        assert!(rest(now) > SETTLED / 2);
        assert_eq!(rest(now - SETTLED), Duration::ZERO);
    }
}
