//! When to search for unreadable messages, and what to do with those that are found.

use std::sync::Arc;
use std::time::Duration;

use idem_core::BoxError;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::first::First;
use crate::pull::{Arrival, Pull};
use crate::stream::Stream;
use crate::unreadable::{self, Unreadable};

/// Two losses of one worker within this time, or within [`WAITS`] ack waits if that is longer, start a search. An
/// unreadable message ends a connection once in each ack wait, but the next one may be that of another worker. A search
/// without a reason only delays the subscription.
const AGAIN: Duration = Duration::from_secs(600);

/// With this many workers, one of them is nearly always hit twice in as many ack waits.
const WAITS: u32 = 20;

impl Stream {
    /// Records the end of a subscription, and returns its error. An unreadable message is redelivered when its lease
    /// expires, and a connection is then lost again.
    pub(crate) fn ended_by(&mut self, end: BoxError) -> BoxError {
        let now = Instant::now();
        let wait = self.subscription.as_ref().map_or(Duration::ZERO, |subscription| subscription.wait);
        self.suspicious = self.lost.replace(now).is_some_and(|before| is_again(now.duration_since(before), wait));
        self.ended(end)
    }

    /// Hands on the messages that async-nats cannot read, and returns their leases.
    pub(crate) async fn unreadable(&mut self, pull: &Pull, arrivals: &UnboundedSender<Arrival>) -> First {
        let acks = match self.acks.get() {
            Some(acks) => acks.clone(),
            None if &*pull.connection.api == "$JS.API" => format!("$JS.ACK.{}.{}", pull.stream, pull.consumer),
            None => {
                tracing::warn!(
                    stream = %self.name,
                    "cannot search for unreadable messages: the ack subject of another domain is unknown until a readable \
                     message arrives"
                );
                return First::default();
            }
        };
        let found = match unreadable::find(pull, &acks, &mut self.searched).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(
                    stream = %self.name,
                    error,
                    "the search for unreadable messages failed; the next one continues it"
                );
                return First::default();
            }
        };
        let mut leases = Vec::new();
        for Unreadable { sequence, reply, delivery } in found {
            tracing::error!(
                stream = %self.name,
                sequence,
                why = delivery.unrepresentable(),
                "async-nats closes the connection at a message that it cannot parse; the message becomes a dead letter"
            );
            let lease = self.leases.add(reply, sequence, pull.wait);
            leases.push(Arc::clone(&lease));
            let _ = arrivals.send(Ok((delivery.with_ordering_key(pull.ordering_key), pull.acker(lease))));
        }
        First::new(leases)
    }
}

/// Returns whether a loss this long after the previous one may have the same unreadable message as its cause.
fn is_again(apart: Duration, wait: Duration) -> bool {
    apart < AGAIN.max(wait.saturating_mul(WAITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of twenty workers, each is hit once in twenty ack waits on average.
    #[test]
    fn a_worker_among_many_is_hit_again_by_the_same_message_after_many_ack_waits() {
        let (wait, long) = (Duration::from_secs(30), Duration::from_secs(120));
        assert!(is_again(wait, wait) && is_again(wait * 19, wait) && !is_again(wait * 20, wait));
        assert!(is_again(long * 19, long) && !is_again(long * 20, long));
    }
}
