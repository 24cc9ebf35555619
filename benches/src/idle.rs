//! A worker as a user configures it, with a store that responds immediately and holds no data, and messages from memory.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use idem::adapter::StagedMessage;
use idem::codec::{Codec, DecodeError};
use idem::prelude::*;
use idem::store::{
    By, ClaimState, Claimed, CommitResult, Consumers, DeadOutgoing, DueRows, ErrorClass, ExistingClaim, FetchFor,
    FetchLimit, FetchedRows, HandlerId, HandlerMark, HasConnection, Identity, InboxRows, KnownHandler, LeaseAnswer,
    LeaseRequest, LeftCalls, LocalMessage, LookBack, NewRow, Of, OutboxFound, OutboxId, OutboxRead, OutboxRows,
    OutboxStats, Page, PublishFailure, Question, Replay, Replayed, Resolution, Row, RowRef, RowResult, Stats,
    StoreError, StoreFacts, Transactions, TxnHandle, TxnOutcome, TxnState, UnreadOutbox, Value,
};
use idem::{Delivery, Error};
use uuid::Uuid;

use crate::queue::{Deliveries, Queue};

/// Returns a queue of this many messages of 97 bytes, of which the first eight are the number. They are allocated in advance,
/// so that no message allocates.
pub(crate) fn numbers(messages: usize) -> Queue {
    let payload = |number: u64| Bytes::from([&number.to_be_bytes()[..], &[b' '; 89]].concat());
    let payloads: Vec<Bytes> = (1..=1024).map(payload).collect();
    Queue::new((0..messages).map(|number| payloads[number % payloads.len()].clone()).collect())
}

/// Runs a worker until the queue is empty.
pub(crate) async fn run(in_flight: usize, queue: Queue) -> Result<()> {
    let worker = Worker::new("bench", Nothing, Deliveries::of(&queue)).codec(Number).handler::<counted>();
    Ok(worker.concurrency(in_flight).run_until(async move { queue.emptied().await }).await?)
}

/// The message: its number. Decoding it takes no time, because JSON is not part of idem.
pub(crate) struct Counted {
    number: u64,
}

#[idempotent(key = "number", name = "counted")]
async fn counted(message: Counted, _tx: &mut Nowhere) -> Result<(), std::convert::Infallible> {
    std::hint::black_box(message.number);
    Ok(())
}

#[derive(Debug)]
struct Number;

impl Codec<Counted> for Number {
    fn decode(&self, delivery: &Delivery) -> Result<Counted, DecodeError> {
        let number = delivery.data().first_chunk().map(|bytes| u64::from_be_bytes(*bytes)).ok_or("too short")?;
        Ok(Counted { number })
    }
}

#[derive(Clone)]
pub(crate) struct Nothing;

/// The connection of its transactions.
pub(crate) struct Nowhere;

impl HasConnection<Nowhere> for Nothing {
    fn connection(txn: &mut Nowhere) -> &mut Nowhere {
        txn
    }
}

type Answer<T> = Result<T, StoreError>;

static FACTS: LazyLock<StoreFacts> =
    LazyLock::new(|| StoreFacts::new("nothing".to_owned(), usize::MAX, Default::default(), ""));

const NEW: Claimed = Claimed::New { pruned_through: None };

impl Transactions for Nothing {
    type Txn = Nowhere;

    fn facts(&self) -> &StoreFacts {
        &FACTS
    }

    async fn ping(&self) -> Answer<()> {
        Ok(())
    }

    async fn begin(&self, _: Duration) -> Answer<Nowhere> {
        Ok(Nowhere)
    }

    async fn begin_first(&self, _: Duration, _: Option<&Identity>) -> Answer<(Nowhere, Claimed)> {
        Ok((Nowhere, NEW))
    }

    async fn claim(&self, _: &mut Nowhere, identities: &[&Identity], _: ClaimState) -> Answer<Vec<Claimed>> {
        Ok(vec![NEW; identities.len()])
    }

    async fn existing_claims(
        &self,
        _: &mut Nowhere,
        identities: &[&Identity],
        _: bool,
    ) -> Answer<Vec<Option<ExistingClaim>>> {
        Ok(vec![None; identities.len()])
    }

    async fn reopen(&self, _: &mut Nowhere, _: &Identity, _: &TxnHandle) -> Answer<bool> {
        Ok(true)
    }

    async fn check_between(&self, _: &mut Nowhere) -> Answer<TxnState> {
        Ok(TxnState::Unknown)
    }

    async fn commit(&self, _: Nowhere) -> CommitResult {
        CommitResult::Done
    }

    fn classify_error(&self, _: Option<&mut Nowhere>, _: &(dyn std::error::Error + 'static)) -> ErrorClass {
        ErrorClass::Ordinary
    }

    async fn rollback(&self, _: Nowhere) -> Answer<TxnOutcome> {
        Ok(TxnOutcome::RolledBack)
    }

    fn txn_handle(&self, _: &Nowhere) -> Option<TxnHandle> {
        None
    }

    async fn txn_outcome(&self, _: &TxnHandle) -> Answer<TxnOutcome> {
        Ok(TxnOutcome::RolledBack)
    }
}

impl InboxRows for Nothing {
    async fn insert(&self, _: &mut Nowhere, rows: &[NewRow<'_>]) -> Answer<Vec<i64>> {
        Ok(vec![0; rows.len()])
    }

    async fn start(&self, _: &mut Nowhere, rows: &[&Row], _: ClaimState) -> Answer<Vec<bool>> {
        Ok(vec![false; rows.len()])
    }

    async fn poll_due(&self, _: &[HandlerId], _: Duration, _: LookBack) -> Answer<DueRows> {
        Ok(DueRows::default())
    }

    async fn fetch(&self, _: &[FetchFor], _: FetchLimit, _: Uuid) -> Answer<FetchedRows> {
        Ok(FetchedRows { rows: Vec::new(), since: Instant::now() })
    }

    async fn extend(&self, _: Uuid, _: &[i64], _: Duration) -> Answer<()> {
        Ok(())
    }

    async fn rows_by_token(&self, _: Uuid) -> Answer<Vec<Row>> {
        Ok(Vec::new())
    }

    async fn record_result(&self, _: &Row, _: &RowResult) -> Answer<bool> {
        Ok(false)
    }

    async fn is_scheduled(&self, _: &Identity) -> Answer<bool> {
        Ok(false)
    }

    async fn dead_letter_crashed(&self, _: &[HandlerId], _: Duration) -> Answer<Vec<Row>> {
        Ok(Vec::new())
    }

    async fn date_call(&self, _: &Row, _: Duration) -> Answer<Option<Instant>> {
        Ok(None)
    }

    async fn release_calls(&self, _: &[HandlerId]) -> Answer<LeftCalls> {
        Ok(LeftCalls::default())
    }
}

impl OutboxRows for Nothing {
    async fn register_outbox(&self, _: &str) -> Result<OutboxId, Error> {
        Ok(OutboxId { number: 0, namespace: Uuid::nil() })
    }

    fn stage(&self, _: &mut Nowhere, _: OutboxId, _: Vec<StagedMessage>, _: Vec<LocalMessage>) {}

    async fn lease_outbox(&self, _: OutboxId, _: Uuid, _: LeaseRequest) -> Answer<LeaseAnswer> {
        Ok(LeaseAnswer::Unknown)
    }

    async fn read_outbox(&self, _: OutboxId, _: &OutboxRead) -> Answer<OutboxFound> {
        Ok(OutboxFound::default())
    }

    async fn delete_published(&self, _: OutboxId, _: Uuid, _: &[RowRef]) -> Answer<u64> {
        Ok(0)
    }

    async fn record_failures(&self, _: OutboxId, _: Uuid, _: &[PublishFailure]) -> Answer<()> {
        Ok(())
    }

    async fn outbox_stats(&self, _: OutboxId, _: u64) -> Answer<OutboxStats> {
        Ok(OutboxStats::default())
    }

    async fn unread_outboxes(&self, _: Duration, _: u64) -> Answer<Vec<UnreadOutbox>> {
        Ok(Vec::new())
    }

    async fn dead_outgoing(&self, _: OutboxId, _: Page) -> Answer<Vec<DeadOutgoing>> {
        Ok(Vec::new())
    }

    async fn remove_dead_outgoing(&self, _: OutboxId, _: &[i64], _: bool, _: &By) -> Answer<Vec<i64>> {
        Ok(Vec::new())
    }
}

impl Consumers for Nothing {
    async fn register(&self, _: &str, names: &[&str]) -> Answer<Vec<HandlerId>> {
        Ok((1..).map(HandlerId).take(names.len()).collect())
    }

    async fn rename(&self, _: &str, _: &str, _: &str) -> Answer<bool> {
        Ok(true)
    }

    async fn mark(&self, _: &[HandlerId], _: HandlerMark) -> Answer<bool> {
        Ok(true)
    }

    async fn handlers(&self, _: Option<&str>) -> Answer<Vec<KnownHandler>> {
        Ok(Vec::new())
    }

    async fn stats(&self, _: &[HandlerId]) -> Answer<Stats> {
        Ok(Stats::default())
    }

    async fn rows(&self, _: &[i64]) -> Answer<Vec<Row>> {
        Ok(Vec::new())
    }

    async fn replay(&self, of: Of<'_>, _: Replay<'_>, _: &By) -> Answer<Vec<(i64, Replayed)>> {
        Ok(of.ids.iter().map(|id| (*id, Replayed::NotFound)).collect())
    }

    async fn resolve(&self, _: Of<'_>, _: Option<Uuid>, _: &Resolution, _: &By) -> Answer<Vec<i64>> {
        Ok(Vec::new())
    }

    async fn ask(&self, _: &Question, _: &[Value]) -> Answer<Vec<String>> {
        Ok(Vec::new())
    }

    async fn prune(&self) -> Answer<u64> {
        Ok(0)
    }
}
