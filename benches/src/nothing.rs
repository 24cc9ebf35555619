//! A store that responds immediately and holds no data.

use std::time::{Duration, Instant};

use idem::store::HasConnection;
use idem::store::{
    CallResult, CallRows, Caller, ClaimState, Claimed, Claims, CommitResult, ConnectionShare, ConnectionShares,
    DueRows, ExistingClaim, Filter, HandlerId, HandlerRows, History, Identity, InboxRows, LeftCalls, LookBack, NewRow,
    Operator, OutboxRows, Page, Pruned, Remedies, Replayed, Resolution, RollbackResult, Row, RowKind, RowResult, Stats,
    StoreError, TakeLimit, TakenCalls, Ticket, Transactions,
};
use idem::{Error, Key};
use uuid::Uuid;

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

impl Transactions for Nothing {
    type Txn = Nowhere;

    async fn ping(&self) -> Answer<()> {
        Ok(())
    }

    fn share_connections(&self, connections: usize) -> Result<ConnectionShare, Error> {
        Ok(ConnectionShares::new(connections).add(connections))
    }

    async fn begin(&self, _: Duration) -> Answer<Nowhere> {
        Ok(Nowhere)
    }

    async fn guard(&self, _: &mut Nowhere) -> Answer<()> {
        Ok(())
    }

    async fn commit(&self, _: Nowhere) -> CommitResult {
        CommitResult::Done
    }

    async fn rollback(&self, _: Nowhere) -> Answer<RollbackResult> {
        Ok(RollbackResult::RolledBack)
    }
}

impl Claims for Nothing {
    async fn register(&self, _: &str, names: &[&str]) -> Answer<Vec<HandlerId>> {
        Ok((1..).map(HandlerId).take(names.len()).collect())
    }

    async fn rename(&self, _: &str, _: &str, _: &str) -> Answer<bool> {
        Ok(true)
    }

    async fn record_seen(&self, _: &[HandlerId]) -> Answer<bool> {
        Ok(true)
    }

    async fn histories(&self, _: &str) -> Answer<Vec<History>> {
        Ok(Vec::new())
    }

    async fn record_history(&self, _: HandlerId) -> Answer<()> {
        Ok(())
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Answer<Vec<Option<Duration>>> {
        Ok(vec![Some(Duration::from_secs(7 * 24 * 3600)); handlers.len()])
    }

    async fn claim(&self, _: &mut Nowhere, identities: &[&Identity], _: ClaimState) -> Answer<Vec<Claimed>> {
        Ok(vec![Claimed::New { pruned_through: None }; identities.len()])
    }

    async fn begin_with_claim(&self, _: Duration, _: &Identity) -> Answer<(Nowhere, Claimed)> {
        Ok((Nowhere, Claimed::New { pruned_through: None }))
    }

    async fn existing_claims(&self, _: &mut Nowhere, identities: &[&Identity]) -> Answer<Vec<Option<ExistingClaim>>> {
        Ok(vec![None; identities.len()])
    }

    async fn reopen(&self, _: &mut Nowhere, _: &Identity, _: &Ticket) -> Answer<bool> {
        Ok(true)
    }
}

impl InboxRows for Nothing {
    async fn insert(&self, _: &mut Nowhere, rows: &[NewRow<'_>]) -> Answer<Vec<i64>> {
        Ok(vec![0; rows.len()])
    }

    async fn count_duplicates(&self, _: &mut Nowhere, _: &[&Identity]) -> Answer<()> {
        Ok(())
    }

    async fn start(&self, _: &mut Nowhere, rows: &[&Row]) -> Answer<Vec<bool>> {
        Ok(vec![false; rows.len()])
    }

    async fn remove(&self, _: &mut Nowhere, _: &Row) -> Answer<bool> {
        Ok(false)
    }

    async fn poll_due(&self, _: &[HandlerId], _: Duration, _: LookBack) -> Answer<DueRows> {
        Ok(DueRows::default())
    }

    async fn take(&self, _: &[HandlerId], _: RowKind, _: TakeLimit, _: Uuid, _: Duration) -> Answer<Vec<Row>> {
        Ok(Vec::new())
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

    async fn refund_start(&self, _: &Row) -> Answer<()> {
        Ok(())
    }

    async fn dead_letter_crashed(&self, _: &[HandlerId], _: Duration) -> Answer<Vec<Row>> {
        Ok(Vec::new())
    }
}

impl CallRows for Nothing {
    async fn take_calls(&self, _: &[Caller], _: usize, _: Option<Duration>, _: Uuid) -> Answer<TakenCalls> {
        Ok(TakenCalls::new(Vec::new(), Instant::now()))
    }

    async fn record_call(&self, _: &Row, _: &CallResult) -> Answer<bool> {
        Ok(false)
    }

    async fn date_call(&self, _: &Row, _: Duration) -> Answer<Option<Instant>> {
        Ok(None)
    }

    async fn release_calls(&self, _: &[HandlerId]) -> Answer<LeftCalls> {
        Ok(LeftCalls::default())
    }
}

impl OutboxRows for Nothing {}

impl Operator for Nothing {
    async fn stats(&self, _: &[HandlerId]) -> Answer<Stats> {
        Ok(Stats::default())
    }

    async fn waiting(&self, _: &str) -> Answer<Vec<HandlerRows>> {
        Ok(Vec::new())
    }

    async fn consumers(&self) -> Answer<Vec<String>> {
        Ok(Vec::new())
    }

    fn cures(&self, _: &str, _: &str, _: &str) -> Remedies {
        Remedies::default()
    }

    async fn list(&self, _: &str, _: &Filter, _: Page) -> Answer<Vec<Row>> {
        Ok(Vec::new())
    }

    async fn replay(&self, _: &str, _: i64, _: bool) -> Answer<Replayed> {
        Ok(Replayed::NotFound)
    }

    async fn replay_as(&self, _: &str, _: i64, _: &Key) -> Answer<Replayed> {
        Ok(Replayed::NotFound)
    }

    async fn discard(&self, _: &str, _: i64) -> Answer<bool> {
        Ok(false)
    }

    async fn resolve(&self, _: &str, _: i64, _: Uuid, _: &Resolution) -> Answer<bool> {
        Ok(false)
    }

    async fn prune(&self) -> Answer<Pruned> {
        Ok(Pruned::of(0))
    }
}
