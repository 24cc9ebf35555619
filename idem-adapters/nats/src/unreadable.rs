//! Messages that async-nats cannot read: it silently closes the connection at each of them.
//!
//! Such a message is redelivered when its lease expires, and ends the next connection. After a second loss in a short
//! time, the unsettled messages are therefore fetched by their numbers, which the server returns as JSON, and the
//! unreadable ones are delivered as undeliverable. Nothing else is pulled until they are settled.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderName;
use async_nats::jetstream::stream::RawMessage;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::iter;
use idem_core::{BoxError, Delivery};
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, timeout};

use crate::connection::Connection;
use crate::leases::First;
use crate::pull::{Arrival, Pull};
use crate::stream::Stream;

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
        let found = match find(pull, &acks, &mut self.searched).await {
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

/// How many messages one search reads at most.
const MOST: usize = 10_000;

/// The time limit of one search.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many messages are read at once, if they fit into [`MEMORY`].
const READS: usize = 100;

/// How much memory the payloads of the messages that are read at once may use. A server cuts off a client for which 64 MiB
/// wait (`max_pending`), and the payloads come in base64.
const MEMORY: usize = 16 << 20;

/// The header with the raw header block from the stream.
const RAW: &str = "idem-nats-headers";

/// An unreadable message, and the subject on which it is settled.
struct Unreadable {
    sequence: u64,
    reply: String,
    delivery: Delivery,
}

/// Returns the unreadable messages among the unsettled ones of a consumer, no more than the worker has room for. `acks` is
/// the part that the subjects of its acks have in common. `place` is where the last search stopped. A message that stays
/// unsettled can have any number of settled ones behind it, so a search may not reach the end; the next one then continues
/// there.
async fn find(pull: &Pull, acks: &str, place: &mut u64) -> Result<Vec<Unreadable>, BoxError> {
    let mut found = Vec::new();
    let searched = timeout(PATIENCE, search(pull, acks, place, &mut found)).await;
    match searched.unwrap_or_else(|elapsed| Err(elapsed.into())) {
        Err(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

async fn search(pull: &Pull, acks: &str, place: &mut u64, found: &mut Vec<Unreadable>) -> Result<(), BoxError> {
    let Pull { connection, stream, consumer, max_unsettled, .. } = pull;
    let info = connection.consumer(stream, consumer).await?;
    let (floor, delivered) = (info.ack_floor.stream_sequence, info.delivered.stream_sequence);
    let filters =
        || info.config.filter_subjects.iter().chain([&info.config.filter_subject]).filter(|of| !of.is_empty());
    let reads = (MEMORY / connection.client.server_info().max_payload.max(1)).clamp(1, READS);
    *place = begin(floor, delivered, *place);
    let read = |sequence| async move { (sequence, message(connection, stream, sequence).await) };
    let mut messages = pin!(iter((*place..=delivered).take(MOST).map(read)).buffered(reads));
    while found.len() < *max_unsettled
        && let Some((sequence, message)) = messages.next().await
    {
        // Also after an error, so that one message that the server cannot return does not stop each search.
        *place = sequence + 1;
        let Some(message) = message? else { continue };
        // The range also contains messages that the filters exclude.
        if filters().next().is_some() && !filters().any(|filter| matches(filter, &message.subject)) {
            continue;
        }
        let headers = STANDARD.decode(message.headers.as_deref().unwrap_or_default())?;
        let Some(why) = unreadable(&message.subject, &headers) else { continue };
        let published = message.time.unix_timestamp_nanos();
        // The server identifies the message by the third number alone (ADR-15 of nats-architecture-and-design).
        let numbers = format!("1.{sequence}.{}.{published}.0", info.delivered.consumer_sequence);
        let delivery = Delivery::new(Arc::clone(stream), STANDARD.decode(&message.payload)?)
            .with_subject(Some(message.subject))
            .with_headers([(RAW, Bytes::from(headers))].into_iter().collect())
            .with_position(Some(format!("{stream}/{sequence}@{published}")))
            .with_published_at(Some(message.time.into()))
            .with_unrepresentable(Some(why));
        found.push(Unreadable { sequence, reply: format!("{acks}.{numbers}"), delivery });
    }
    if *place > delivered {
        *place = 0;
    }
    Ok(())
}

/// Returns where to begin: where the last search stopped, if that is still among the unsettled messages.
fn begin(floor: u64, delivered: u64, place: u64) -> u64 {
    if (floor + 1..=delivered).contains(&place) { place } else { floor + 1 }
}

/// Returns a message of the stream, or `None` if it was deleted.
async fn message(connection: &Connection, stream: &str, sequence: u64) -> Result<Option<RawMessage>, BoxError> {
    let subject = format!("{}.STREAM.MSG.GET.{stream}", connection.api);
    let asked = connection.client.request(subject, json!({ "seq": sequence }).to_string().into());
    let mut answer: Value = serde_json::from_slice(&asked.await?.payload)?;
    match answer["error"]["code"].as_u64() {
        None => Ok(Some(serde_json::from_value(answer["message"].take())?)),
        Some(404) => Ok(None),
        Some(_) => Err(answer["error"].to_string().into()),
    }
}

/// Returns whether a filter matches this subject.
fn matches(filter: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for wanted in filter.split('.') {
        match tokens.next() {
            Some(_) if wanted == ">" => return true,
            Some(token) if wanted == "*" || wanted == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

/// Returns why async-nats closes the connection at such a message, or `None` if it does not. A readable message must not be
/// taken for an unreadable one, so this follows the client's parser (async-nats 0.51, `try_read_op`) step by step.
fn unreadable(subject: &str, headers: &[u8]) -> Option<String> {
    // Only the line of a message with headers is split at each kind of white space.
    let words = match headers.is_empty() {
        true => subject.split(' ').filter(|word| !word.is_empty()).count(),
        false => subject.split_whitespace().count(),
    };
    // The server writes U+FFFD in place of bytes that are not UTF-8.
    if words != 1 || subject.contains('\u{fffd}') {
        return Some("the subject is not UTF-8, or holds white space".to_owned());
    }
    if headers.is_empty() {
        return None;
    }
    let Ok(text) = std::str::from_utf8(headers) else { return Some("the headers are not UTF-8".to_owned()) };
    let mut lines = text.lines();
    let status = lines.next().and_then(|line| line.strip_prefix("NATS/1.0")).map(str::trim);
    let status = status.map(|status| status.split(' ').next().unwrap_or_default());
    if !status.is_some_and(|status| status.is_empty() || status.parse::<async_nats::StatusCode>().is_ok()) {
        return Some("the first header line does not begin with a valid `NATS/1.0` status".to_owned());
    }
    odd_line(lines).map(|line| format!("a header line cannot be parsed: {line:?}"))
}

/// Returns the first line that begins no header.
fn odd_line<'a>(lines: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut lines = lines.peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let Some((_, value)) = line.split_once(':').filter(|(name, _)| name.parse::<HeaderName>().is_ok()) else {
            return Some(line);
        };
        let mut value = value.trim_start().to_owned();
        // A line that begins with white space continues the value before it.
        while let Some(more) = lines.next_if(|line| line.starts_with(char::is_whitespace)) {
            value.push_str(more);
        }
        if value.trim_end().contains('\r') {
            return Some(line);
        }
    }
    None
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

    #[test]
    fn a_search_continues_where_the_last_one_stopped_and_starts_over_at_the_end() {
        assert_eq!([begin(4, 90, 0), begin(4, 90, 50), begin(4, 90, 90)], [5, 50, 90]);
        assert_eq!([begin(60, 90, 50), begin(4, 90, 91), begin(0, 0, 0)], [61, 5, 1]);
    }

    #[test]
    fn a_filter_takes_what_the_server_takes_by_it() {
        for filter in ["a.b.c", "a.*.c", "a.>", "*.b.>", ">"] {
            assert!(matches(filter, "a.b.c"), "{filter}");
        }
        for filter in ["a.b", "a.b.c.d", "a.*", "a.b.c.>", "b.>", "a.b.x"] {
            assert!(!matches(filter, "a.b.c"), "{filter}");
        }
    }

    #[test]
    fn messages_that_async_nats_reads_are_fit_and_others_are_not() {
        let fit: [&[u8]; 7] = [
            b"",
            b"NATS/1.0\r\n\r\n",
            b"NATS/1.0 100 Idle\r\n\r\n",
            b"NATS/1.0\r\nname: value\r\nother:\r\n\r\n",
            b"NATS/1.0\r\nname: value\r\n  goes on\r\n\r\n",
            "NATS/1.0\r\nname: \u{e4}\r\n\r\n".as_bytes(),
            b"NATS/1.0\r\nname: value\r\r\n\r\n",
        ];
        for headers in fit {
            assert_eq!(unreadable("orders.paid", headers), None, "{headers:?}");
        }
        let odd: [&[u8]; 8] = [
            b"NATS/1.0\r\nname: \xff\r\n\r\n",
            b"NATS/2.0\r\n\r\n",
            b"NATS/1.0 what\r\n\r\n",
            b"NATS/1.0\r\nno colon\r\n\r\n",
            b"NATS/1.0\r\nna me: value\r\n\r\n",
            b"NATS/1.0\r\nname: va\rlue\r\n\r\n",
            b"NATS/1.0\r\n goes on: value\r\n\r\n",
            b"NATS/1.0\r\nname: value\r\n\r\n goes on: value\r\n\r\n",
        ];
        for headers in odd {
            assert!(unreadable("orders.paid", headers).is_some(), "{headers:?}");
        }
        for subject in ["orders.\u{fffd}", "orders. paid", ""] {
            assert!(unreadable(subject, b"").is_some(), "{subject:?}");
        }
        let spaced = "orders.\u{a0}paid";
        assert!(unreadable(spaced, b"").is_none() && unreadable(spaced, b"NATS/1.0\r\n\r\n").is_some());
    }
}
