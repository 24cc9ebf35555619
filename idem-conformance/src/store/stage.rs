//! The setup of most cases: a store with one handler, and a table of effects.

use std::time::Duration;

use idem_core::operator::{Filter, Operator, Page};
use idem_core::store::{
    By, ClaimState, Claimed, CommitResult, Consumers, ExistingClaim, FetchFor, FetchLimit, HandlerId, Identity,
    InboxRows, NewRow, Of, Replay, Replayed, Resolution, Row, RowKind, Transactions, TxnHandle,
};
use idem_core::{Delivery, Fingerprint, HasConnection, Key, Reason, Store};
use uuid::Uuid;

use super::world::{Setup, World};

/// The lease of fetched rows.
pub(super) const LEASE: Duration = Duration::from_secs(10);

/// How a handler may end its transaction.
pub(super) const ABUSES: [&str; 5] =
    ["ROLLBACK", "ROLLBACK; BEGIN", "COMMIT", "COMMIT; BEGIN", "COMMIT; BEGIN; COMMIT"];

/// A store with one handler of the consumer `billing`.
pub(super) struct Stage<W: World> {
    pub(super) world: W,
    pub(super) store: W::Store,
    pub(super) handler: HandlerId,
}

impl<W: World> Stage<W> {
    pub(super) async fn new(world: W) -> Self {
        Self::with(world, Setup::default()).await
    }

    /// The same where a case can run: `None` ends it.
    pub(super) async fn new_if(can_run: bool, world: W) -> Option<Self> {
        if can_run { Some(Self::new(world).await) } else { None }
    }

    pub(super) async fn with(world: W, setup: Setup) -> Self {
        let store = world.store(setup).await.unwrap();
        // Without a constraint, so that only the claim prevents a second effect.
        world.run(&format!("CREATE TABLE {} (name VARCHAR(200) NOT NULL)", world.name("effects"))).await;
        let handler = register(&store, "billing", "order_paid").await;
        Self { world, store, handler }
    }

    // ===== identities =====

    /// The message with this key and payload.
    pub(super) fn message(&self, key: &str, payload: &str) -> Identity {
        Identity { handler: self.handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::of(payload.as_bytes()) }
    }

    /// The message with this key.
    pub(super) fn id(&self, key: &str) -> Identity {
        self.message(key, key)
    }

    // ===== transactions =====

    pub(super) async fn begin(&self) -> <W::Store as Transactions>::Txn {
        self.store.begin(Duration::from_secs(30)).await.unwrap()
    }

    /// Begins a transaction in which this row starts.
    pub(super) async fn started(&self, row: &Row) -> <W::Store as Transactions>::Txn {
        let mut txn = self.begin().await;
        assert_eq!(self.store.start(&mut txn, &[row], ClaimState::Processed).await.unwrap(), [true]);
        txn
    }

    pub(super) async fn commit(&self, txn: <W::Store as Transactions>::Txn) -> CommitResult {
        self.store.commit(txn).await
    }

    /// Commits a transaction that its handler has ended in this way, which is found out.
    pub(super) async fn commit_ended(&self, txn: <W::Store as Transactions>::Txn, abuse: &str) {
        let done = self.commit(txn).await;
        let is_reported = matches!(
            done,
            CommitResult::RolledBack
                | CommitResult::CommittedEarly(_)
                | CommitResult::CommitRefused
                | CommitResult::Swallowed
        );
        assert!(is_reported, "{abuse}: {done:?}");
    }

    /// Begins a transaction and makes a claim that must be new.
    pub(super) async fn claimed(&self, identity: &Identity) -> <W::Store as Transactions>::Txn {
        let claim = self.store.begin_first(Duration::from_secs(30), Some(identity));
        let (txn, claimed) = claim.await.unwrap();
        assert!(claimed.is_new());
        txn
    }

    /// Writes an effect, as a handler does.
    pub(super) async fn effect(&self, txn: &mut <W::Store as Transactions>::Txn, name: &str) {
        self.execute(txn, &self.effect_sql(name)).await.unwrap();
    }

    pub(super) fn effect_sql(&self, name: &str) -> String {
        format!("INSERT INTO {} (name) VALUES ('{name}')", self.world.name("effects"))
    }

    /// Runs SQL on the handler's connection.
    pub(super) async fn execute(
        &self,
        txn: &mut <W::Store as Transactions>::Txn,
        sql: &str,
    ) -> Result<(), idem_core::BoxError> {
        W::execute(<W::Store as HasConnection<W::Connection>>::connection(txn), sql).await
    }

    /// How often an effect is in the database.
    pub(super) async fn effects(&self, name: &str) -> i64 {
        let effects = self.world.name("effects");
        self.world.number(&format!("SELECT count(*) FROM {effects} WHERE name = '{name}'")).await
    }

    /// Processes a message whose effect is named by its key. Returns the handle of the transaction.
    pub(super) async fn process(&self, key: &str) -> TxnHandle {
        let mut txn = self.claimed(&self.id(key)).await;
        self.effect(&mut txn, key).await;
        let txn_handle = self.store.txn_handle(&txn).unwrap_or_default();
        committed(self.commit(txn).await);
        txn_handle
    }

    // ===== questions =====

    /// The result of a claim now; the claim is not kept.
    pub(super) async fn claim_now(&self, identity: &Identity) -> Claimed {
        let mut txn = self.begin().await;
        let claimed = self.store.claim(&mut txn, &[identity], ClaimState::Processed).await.unwrap();
        self.store.rollback(txn).await.unwrap();
        claimed[0]
    }

    pub(super) async fn existing_claim(&self, key: &str) -> Option<ExistingClaim> {
        let mut txn = self.begin().await;
        let existing_claims = self.store.existing_claims(&mut txn, &[&self.id(key)], true).await.unwrap();
        self.store.rollback(txn).await.unwrap();
        existing_claims[0]
    }

    /// Whether the claim exists and is dated.
    pub(super) async fn is_dated(&self, key: &str) -> bool {
        self.existing_claim(key).await.is_some_and(|existing_claim| existing_claim.age.is_some())
    }

    /// Whether the claim exists and is waiting.
    pub(super) async fn is_waiting(&self, key: &str) -> bool {
        self.existing_claim(key).await.is_some_and(|existing_claim| existing_claim.age.is_none())
    }

    pub(super) async fn scheduled(&self) -> Vec<Row> {
        self.list(&Filter::new().scheduled()).await
    }

    pub(super) async fn dead(&self) -> Vec<Row> {
        self.list(&Filter::new()).await
    }

    /// The rows that match, as an operator lists them.
    pub(super) async fn list(&self, filter: &Filter) -> Vec<Row> {
        Operator::new(&self.store).consumer("billing").list(filter, Page::default()).await.unwrap().rows
    }

    /// The only scheduled row.
    pub(super) async fn one_scheduled(&self) -> Row {
        let mut rows = self.scheduled().await;
        assert_eq!(rows.len(), 1, "scheduled rows: {rows:?}");
        rows.remove(0)
    }

    /// The only dead row.
    pub(super) async fn one_dead(&self) -> Row {
        let mut rows = self.dead().await;
        assert_eq!(rows.len(), 1, "dead rows: {rows:?}");
        rows.remove(0)
    }

    // ===== rows =====

    /// Inserts a row, with its claim if `claim` is set.
    pub(super) async fn row(&self, identity: &Identity, claim: bool, state: Result<Duration, Reason>) {
        let mut txn = self.begin().await;
        if claim {
            assert!(self.store.claim(&mut txn, &[identity], ClaimState::Waiting).await.unwrap()[0].is_new());
        }
        let delivery = Delivery::new("orders", "payload");
        let row = NewRow::new(identity, &delivery, state).with_attempts(0, "first");
        self.store.insert(&mut txn, &[row]).await.unwrap();
        committed(self.commit(txn).await);
    }

    /// Stores a scheduled message that is due now.
    pub(super) async fn schedule(&self, key: &str) {
        self.row(&self.id(key), true, Ok(Duration::ZERO)).await;
    }

    /// Stores a dead letter and returns its id.
    pub(super) async fn dead_letter(&self, key: &str, reason: Reason) -> i64 {
        self.row(&self.id(key), true, Err(reason)).await;
        self.dead().await[0].id
    }

    /// Stores a conflict beside the claim of `key` and returns its id.
    pub(super) async fn conflict(&self, key: &str, payload: &str) -> i64 {
        self.row(&self.message(key, payload), false, Err(Reason::Conflict)).await;
        self.dead().await[0].id
    }

    pub(super) async fn fetch(&self, kind: RowKind) -> Vec<Row> {
        self.take_at_most(FetchLimit::rows(kind, 100)).await
    }

    /// Fetches rows within this limit.
    pub(super) async fn take_at_most(&self, limit: FetchLimit) -> Vec<Row> {
        self.store.fetch(&[FetchFor::new(self.handler, LEASE)], limit, Uuid::new_v4()).await.unwrap().rows
    }

    /// Fetches the only row of this kind.
    pub(super) async fn fetch_row(&self, kind: RowKind) -> Row {
        let mut rows = self.fetch(kind).await;
        assert_eq!(rows.len(), 1, "fetched rows: {rows:?}");
        rows.remove(0)
    }

    /// Fetches the only orphaned row, of either kind.
    pub(super) async fn fetch_orphan(&self) -> Row {
        let mut rows = [self.fetch(RowKind::Orphan).await, self.fetch(RowKind::Alone).await].concat();
        assert_eq!(rows.len(), 1, "fetched orphaned rows: {rows:?}");
        rows.remove(0)
    }

    // ===== what an operator does =====

    /// Replays one row.
    pub(super) async fn replay(&self, id: i64, how: Replay<'_>) -> Replayed {
        self.replay_of("billing", id, how).await
    }

    /// The same for an operator of this consumer.
    pub(super) async fn replay_of(&self, consumer: &str, id: i64, how: Replay<'_>) -> Replayed {
        let replayed = self.store.replay(Of::consumer(consumer, &[id]), how, &By::new("anna")).await.unwrap();
        assert_eq!((replayed.len(), replayed[0].0), (1, id));
        replayed[0].1
    }

    /// Discards one row. Returns whether there was one.
    pub(super) async fn discard(&self, id: i64) -> bool {
        self.resolve(id, None, &Resolution::Discard).await
    }

    /// Resolves one row. Returns whether it was changed.
    pub(super) async fn resolve(&self, id: i64, provider_key: Option<Uuid>, how: &Resolution) -> bool {
        self.resolve_of("billing", id, provider_key, how).await
    }

    /// The same for an operator of this consumer.
    pub(super) async fn resolve_of(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Option<Uuid>,
        how: &Resolution,
    ) -> bool {
        let (ids, by) = ([id], By::new("anna"));
        let done = self.store.resolve(Of::consumer(consumer, &ids), provider_key, how, &by).await.unwrap();
        assert!(done.is_empty() || done == ids, "{done:?}");
        !done.is_empty()
    }

    // ===== time =====

    /// Moves the due times or lease ends of all rows back by `by`.
    pub(super) async fn rows_earlier(&self, by: Duration) {
        let (inbox, earlier) = (self.world.own("inbox_messages"), W::due_earlier(by));
        self.world.run(&format!("UPDATE {inbox} SET {earlier}")).await;
    }

    /// Moves the dates of all claims back by `by`.
    pub(super) async fn claims_earlier(&self, by: Duration) {
        let (claims, earlier) = (self.world.own("processed_messages"), W::earlier("processed_at", by));
        self.world.run(&format!("UPDATE {claims} SET processed_at = {earlier}")).await;
    }

    /// Ends the leases of all rows.
    pub(super) async fn end_leases(&self) {
        self.rows_earlier(LEASE + Duration::from_secs(1)).await;
    }
}

/// Registers one handler and returns its number.
pub(super) async fn register<S: Store>(store: &S, consumer: &str, name: &str) -> HandlerId {
    store.register(consumer, &[name]).await.unwrap()[0]
}

/// Asserts that the commit succeeded.
pub(super) fn committed(committed: CommitResult) {
    assert!(matches!(committed, CommitResult::Done), "it was to be committed: {committed:?}");
}

/// Repeats a query until it returns `Some`: a server may notice a closed connection late.
pub(super) async fn settled<T>(mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    crate::soon(async {
        loop {
            match ask().await {
                Some(answer) => return answer,
                None => tokio::task::yield_now().await,
            }
        }
    })
    .await
}
