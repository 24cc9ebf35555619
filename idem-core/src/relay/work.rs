//! The statements and calls of a relay, which run beside each other.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::Key;
use crate::Store;
use crate::outbox::{Sink, SinkError};
use crate::panic_text::panic_text;
use crate::store::{
    LaneLeases, LaneLook, OutboxFound, OutboxId, OutboxRead, OutboxStats, PublishFailure, RowRef, StoreError,
};
use crate::telemetry::OUTBOX_COUNTED;

use super::entry::Entry;
use super::lanes::Permit;

/// The end of a statement or a call.
#[derive(Debug)]
pub(super) enum Event {
    Published { permit: Permit, entry: Entry, began: Instant, answer: Answer },
    Read { began: Instant, found: Result<OutboxFound, StoreError> },
    Deleted { rows: Vec<RowRef>, deleted: Result<u64, StoreError> },
    Recorded { failures: Vec<Failed>, recorded: Result<(), StoreError> },
    Renewed { began: Instant, leases: Result<LaneLeases, StoreError> },
    Taken { lanes: Result<Vec<u8>, StoreError> },
    Given { lanes: BTreeSet<u8>, given: Result<(), StoreError> },
    Counted { stats: Result<OutboxStats, String> },
}

/// The answer of a sink.
#[derive(Debug)]
pub(super) enum Answer {
    Confirmed,
    Refused(String),
    Away(String),
    /// There was no answer in time.
    Late(String),
    /// The lane was lost meanwhile.
    Cancelled,
    /// The sink panicked.
    Panicked(String),
}

/// A message whose failure has to be recorded.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    /// That of the call. If its lane was lost meanwhile, the message is not here any more, or was read again.
    pub(super) permit: Permit,
    pub(super) entry: Entry,
    pub(super) failure: PublishFailure,
}

/// The parameters of a read.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) lanes: Vec<LaneLook>,
    pub(super) blocked: Vec<Key>,
    pub(super) known: Vec<i64>,
    pub(super) marks: bool,
}

/// The most bytes of payloads and headers that one read brings, over all lanes.
const BYTES: u64 = 64 * 1024 * 1024;

/// How long counting may take. It is for gauges only.
const COUNT: Duration = Duration::from_secs(5);

/// Publishes one message, for at most this long.
pub(super) fn publish<'a, K: Sink>(sink: &'a K, permit: Permit, entry: Entry, limit: Duration) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let began = Instant::now();
        let call = timeout(limit, AssertUnwindSafe(sink.publish(&entry.message)).catch_unwind());
        let answer = tokio::select! {
            biased;
            () = permit.stop.cancelled() => Answer::Cancelled,
            answer = call => match answer {
                Ok(Ok(Ok(()))) => Answer::Confirmed,
                Ok(Ok(Err(SinkError::Message(error)))) => Answer::Refused(crate::error::text(error.as_ref())),
                Ok(Ok(Err(SinkError::Broker(error)))) => Answer::Away(crate::error::text(error.as_ref())),
                Ok(Err(panic)) => Answer::Panicked(panic_text(panic.as_ref()).to_owned()),
                Err(_) => Answer::Late(format!("it did not confirm a message within {limit:?}")),
            },
        };
        Event::Published { permit, entry, began, answer }
    })
}

pub(super) fn read<'a, S: Store>(store: &'a S, outbox: OutboxId, look: Look) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let began = Instant::now();
        let bytes = BYTES / (look.lanes.len() as u64).max(1);
        let Look { lanes, blocked, known, marks } = &look;
        let read = OutboxRead { lanes, blocked, known, bytes, marks: *marks };
        Event::Read { began, found: store.read_outbox(outbox, read).await }
    })
}

pub(super) fn delete<'a, S: Store>(
    store: &'a S,
    outbox: OutboxId,
    token: Uuid,
    rows: Vec<RowRef>,
) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let deleted = store.delete_published(outbox, token, &rows).await;
        Event::Deleted { rows, deleted }
    })
}

pub(super) fn record<'a, S: Store>(
    store: &'a S,
    outbox: OutboxId,
    token: Uuid,
    failures: Vec<Failed>,
) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let rows: Vec<_> = failures.iter().map(|failed| failed.failure.clone()).collect();
        let recorded = store.record_failures(outbox, token, &rows).await;
        Event::Recorded { failures, recorded }
    })
}

pub(super) fn renew<'a, S: Store>(
    store: &'a S,
    outbox: OutboxId,
    token: Uuid,
    lease: Duration,
) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let began = Instant::now();
        Event::Renewed { began, leases: store.renew_lanes(outbox, token, lease).await }
    })
}

pub(super) fn take<'a, S: Store>(
    store: &'a S,
    outbox: OutboxId,
    token: Uuid,
    lease: Duration,
    limit: usize,
) -> BoxFuture<'a, Event> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    Box::pin(async move { Event::Taken { lanes: store.take_lanes(outbox, token, lease, limit).await } })
}

pub(super) fn give<'a, S: Store>(
    store: &'a S,
    outbox: OutboxId,
    token: Uuid,
    lanes: BTreeSet<u8>,
) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let numbers: Vec<u8> = lanes.iter().copied().collect();
        let given = store.give_lanes(outbox, token, Some(&numbers)).await;
        Event::Given { lanes, given }
    })
}

pub(super) fn count<'a, S: Store>(store: &'a S, outbox: OutboxId) -> BoxFuture<'a, Event> {
    Box::pin(async move {
        let stats = match timeout(COUNT, store.outbox_stats(outbox, OUTBOX_COUNTED)).await {
            Ok(answer) => answer.map_err(|fault| crate::error::text(&fault)),
            Err(_) => Err(format!("it takes longer than {COUNT:?}")),
        };
        Event::Counted { stats }
    })
}
