//! What the cases about calls do with their rows.

use std::time::Duration;

use idem_core::store::{
    CallAnswer, CallResult, ClaimState, FetchFor, FetchLimit, HandlerId, Identity, InboxRows, LookBack, NewRow,
    Resolution, Row, RowKind, Transactions,
};
use idem_core::{Delivery, Reason};
use uuid::Uuid;

use super::stage::{LEASE, Stage, committed};
use super::world::World;

pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// Stores a message whose handler makes a call, due now.
pub(super) async fn store<W: World>(stage: &Stage<W>, key: &str) {
    store_for(stage, stage.handler, key).await;
}

/// The same for another handler.
pub(super) async fn store_for<W: World>(stage: &Stage<W>, handler: HandlerId, key: &str) {
    let (identity, delivery) = (Identity { handler, ..stage.id(key) }, Delivery::new("orders", "payload"));
    let mut txn = stage.begin().await;
    assert!(stage.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap()[0].is_new());
    let row = NewRow::new(&identity, &delivery, Ok(Duration::ZERO)).with_call(Uuid::new_v4());
    stage.store.insert(&mut txn, &[row]).await.unwrap();
    committed(stage.commit(txn).await);
}

/// A handler that makes the call `charge`.
pub(super) fn caller(handler: HandlerId) -> FetchFor {
    FetchFor { call: "charge".into(), ..FetchFor::new(handler, LEASE) }
}

pub(super) async fn fetch<W: World>(stage: &Stage<W>) -> Vec<Row> {
    take_for(stage, &[caller(stage.handler)], 100).await
}

/// Fetches rows for the calls of these handlers.
pub(super) async fn take_for<W: World>(stage: &Stage<W>, callers: &[FetchFor], rows: usize) -> Vec<Row> {
    let limit = FetchLimit::rows(RowKind::Calling, rows);
    stage.store.fetch(callers, limit, Uuid::new_v4()).await.unwrap().rows
}

pub(super) async fn fetch_row<W: World>(stage: &Stage<W>) -> Row {
    let mut rows = fetch(stage).await;
    assert_eq!(rows.len(), 1, "fetched rows: {rows:?}");
    rows.remove(0)
}

/// A row that was stored and fetched.
pub(super) async fn fetched<W: World>(stage: &Stage<W>) -> Row {
    store(stage, "a").await;
    fetch_row(stage).await
}

pub(super) fn failed(next: Result<Duration, Reason>) -> CallResult {
    CallResult::failed(next, "it failed".to_owned())
}

pub(super) fn answer() -> CallAnswer {
    CallAnswer::new("{\"id\":7}")
}

/// Does what a person has decided who has looked for the key of the row.
pub(super) async fn resolve<W: World>(stage: &Stage<W>, row: &Row, resolution: &Resolution) -> bool {
    stage.resolve(row.id, Some(row.provider_key.unwrap()), resolution).await
}

/// Whether any statement of ordinary rows or orphaned rows finds a row.
pub(super) async fn is_seen<W: World>(stage: &Stage<W>) -> bool {
    let due = stage.store.poll_due(&[stage.handler], Duration::ZERO, LookBack::default()).await.unwrap();
    let crashed = stage.store.dead_letter_crashed(&[stage.handler], Duration::ZERO).await.unwrap();
    let mut fetched = Vec::new();
    for kind in [RowKind::Ordinary, RowKind::Orphan, RowKind::Alone] {
        fetched.extend(stage.fetch(kind).await);
    }
    due.ordinary || due.orphan || due.alone || due.crashed || !crashed.is_empty() || !fetched.is_empty()
}
