//! A store that stops at a point.

use std::time::Duration;

use idem_core::store::{
    Claimed, Claims, Committed, Cures, Fault, Filter, HandlerId, Identity, InboxRows, Kind, Level, Limit, NewRow, Note,
    Operator, Page, Promise, Pruned, Replayed, Reservation, Row, Standing, Survey, Ticket, Transactions, Undone,
    Waiting,
};
use idem_core::{Error, Key, Lends, Store};
use uuid::Uuid;

use super::Crash;
use super::crash::Fate;

/// A store whose process may crash: it does what the store within does, and stops for ever at the chosen point.
#[derive(Debug, Clone)]
pub struct Crashing<S> {
    within: S,
    fate: Fate,
}

impl<S> Crashing<S> {
    pub(super) fn new(within: S, fate: Fate) -> Self {
        Self { within, fate }
    }
}

/// A transaction of [`Crashing`].
#[derive(Debug)]
pub struct CrashingTxn<T> {
    pub(super) within: T,
    pub(super) fate: Fate,
}

/// Lends the transaction itself: whoever runs the handler needs the fate that comes with it.
impl<S: Store> Lends<CrashingTxn<S::Txn>> for Crashing<S> {
    fn lend(txn: &mut Self::Txn) -> &mut CrashingTxn<S::Txn> {
        txn
    }
}

impl<S: Store> Transactions for Crashing<S> {
    type Txn = CrashingTxn<S::Txn>;

    async fn ping(&self) -> Result<(), Fault> {
        self.within.ping().await
    }

    fn reserve(&self, connections: usize) -> Result<Reservation, Error> {
        self.within.reserve(connections)
    }

    async fn begin(&self, deadline: Duration) -> Result<Self::Txn, Fault> {
        self.fate.reach(Crash::BeforeBegin).await;
        let within = self.within.begin(deadline).await?;
        Ok(CrashingTxn { within, fate: self.fate.clone() })
    }

    async fn between(&self, txn: &mut Self::Txn) -> Result<bool, Fault> {
        self.within.between(&mut txn.within).await
    }

    async fn commit(&self, txn: Self::Txn) -> Committed {
        self.fate.reach(Crash::BeforeCommit).await;
        let committed = self.within.commit(txn.within).await;
        self.fate.reach(Crash::AfterCommit).await;
        committed
    }

    fn lost_race(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.lost_race(error)
    }

    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.deadlocked(error)
    }

    async fn rollback(&self, txn: Self::Txn) -> Result<Undone, Fault> {
        self.within.rollback(txn.within).await
    }

    fn ticket(&self, txn: &Self::Txn) -> Option<Ticket> {
        self.within.ticket(&txn.within)
    }

    async fn fate(&self, ticket: &Ticket) -> Result<idem_core::store::Fate, Fault> {
        self.within.fate(ticket).await
    }
}

impl<S: Store> Claims for Crashing<S> {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, Fault> {
        self.within.register(consumer, names).await
    }

    async fn seen(&self, handlers: &[HandlerId]) -> Result<(), Fault> {
        self.within.seen(handlers).await
    }

    async fn has_history(&self, consumer: &str) -> Result<bool, Fault> {
        self.within.has_history(consumer).await
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, Fault> {
        self.within.retention(handlers).await
    }

    async fn claim(
        &self,
        txn: &mut CrashingTxn<S::Txn>,
        identity: &Identity,
        promise: Promise,
    ) -> Result<Claimed, Fault> {
        let claimed = self.within.claim(&mut txn.within, identity, promise).await?;
        if claimed.is_new() {
            self.fate.reach(Crash::AfterClaim).await;
        }
        Ok(claimed)
    }

    async fn begin_with_claim(
        &self,
        deadline: Duration,
        identity: &Identity,
        promise: Promise,
    ) -> Result<(CrashingTxn<S::Txn>, Claimed), Fault> {
        self.fate.reach(Crash::BeforeBegin).await;
        let (within, claimed) = self.within.begin_with_claim(deadline, identity, promise).await?;
        if claimed.is_new() {
            self.fate.reach(Crash::AfterClaim).await;
        }
        Ok((CrashingTxn { within, fate: self.fate.clone() }, claimed))
    }

    async fn standing(
        &self,
        txn: &mut CrashingTxn<S::Txn>,
        handler: HandlerId,
        key: &Key,
    ) -> Result<Option<Standing>, Fault> {
        self.within.standing(&mut txn.within, handler, key).await
    }

    async fn claim_many(
        &self,
        txn: &mut CrashingTxn<S::Txn>,
        identities: &[&Identity],
        promise: Promise,
    ) -> Result<Vec<Claimed>, Fault> {
        let claimed = self.within.claim_many(&mut txn.within, identities, promise).await?;
        if claimed.iter().any(Claimed::is_new) {
            self.fate.reach(Crash::AfterClaim).await;
        }
        Ok(claimed)
    }

    async fn standing_many(
        &self,
        txn: &mut CrashingTxn<S::Txn>,
        identities: &[&Identity],
    ) -> Result<Vec<Option<Standing>>, Fault> {
        self.within.standing_many(&mut txn.within, identities).await
    }

    async fn known(&self, txn: &mut CrashingTxn<S::Txn>, ids: &[&Identity]) -> Result<Vec<Option<Standing>>, Fault> {
        self.within.known(&mut txn.within, ids).await
    }

    async fn reopen(&self, txn: &mut CrashingTxn<S::Txn>, handler: HandlerId, key: &Key) -> Result<(), Fault> {
        self.within.reopen(&mut txn.within, handler, key).await
    }
}

impl<S: Store> InboxRows for Crashing<S> {
    async fn insert(&self, txn: &mut CrashingTxn<S::Txn>, row: &NewRow<'_>) -> Result<(), Fault> {
        self.within.insert(&mut txn.within, row).await
    }

    async fn insert_many(&self, txn: &mut CrashingTxn<S::Txn>, rows: &[NewRow<'_>]) -> Result<(), Fault> {
        self.within.insert_many(&mut txn.within, rows).await
    }

    async fn sight(&self, txn: &mut CrashingTxn<S::Txn>, identity: &Identity) -> Result<(), Fault> {
        self.within.sight(&mut txn.within, identity).await
    }

    async fn sight_many(&self, txn: &mut CrashingTxn<S::Txn>, identities: &[&Identity]) -> Result<(), Fault> {
        self.within.sight_many(&mut txn.within, identities).await
    }

    async fn start(&self, txn: &mut CrashingTxn<S::Txn>, row: &Row) -> Result<bool, Fault> {
        let started = self.within.start(&mut txn.within, row).await?;
        if started {
            self.fate.reach(Crash::AfterClaim).await;
        }
        Ok(started)
    }

    async fn start_many(&self, txn: &mut CrashingTxn<S::Txn>, rows: &[&Row]) -> Result<Vec<bool>, Fault> {
        let started = self.within.start_many(&mut txn.within, rows).await?;
        if started.contains(&true) {
            self.fate.reach(Crash::AfterClaim).await;
        }
        Ok(started)
    }

    async fn remove(&self, txn: &mut CrashingTxn<S::Txn>, row: &Row) -> Result<bool, Fault> {
        self.within.remove(&mut txn.within, row).await
    }

    async fn survey(&self, handlers: &[HandlerId], lease: Duration) -> Result<Survey, Fault> {
        self.within.survey(handlers, lease).await
    }

    async fn take(
        &self,
        handlers: &[HandlerId],
        kind: Kind,
        limit: Limit,
        token: Uuid,
        lease: Duration,
    ) -> Result<Vec<Row>, Fault> {
        self.within.take(handlers, kind, limit, token, lease).await
    }

    async fn count_start(&self, row: &Row, lease: Duration) -> Result<bool, Fault> {
        self.within.count_start(row, lease).await
    }

    async fn extend(&self, token: Uuid, ids: &[i64], lease: Duration) -> Result<(), Fault> {
        self.within.extend(token, ids, lease).await
    }

    async fn taken(&self, token: Uuid) -> Result<Vec<Row>, Fault> {
        self.within.taken(token).await
    }

    async fn note(&self, row: &Row, note: &Note) -> Result<bool, Fault> {
        self.within.note(row, note).await
    }

    async fn is_parked(&self, identity: &Identity) -> Result<bool, Fault> {
        self.within.is_parked(identity).await
    }

    async fn make_due(&self, identity: &Identity) -> Result<(), Fault> {
        self.within.make_due(identity).await
    }

    async fn unstart(&self, row: &Row) -> Result<(), Fault> {
        self.within.unstart(row).await
    }

    async fn judge(&self, handlers: &[HandlerId], lease: Duration) -> Result<u64, Fault> {
        self.within.judge(handlers, lease).await
    }
}

impl<S: Store> Operator for Crashing<S> {
    async fn level(&self, handlers: &[HandlerId]) -> Result<Level, Fault> {
        self.within.level(handlers).await
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<Waiting>, Fault> {
        self.within.waiting(consumer).await
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Cures {
        self.within.cures(consumer, handler, new)
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, Fault> {
        self.within.list(consumer, filter, page).await
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, Fault> {
        self.within.replay(consumer, id, force).await
    }

    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, Fault> {
        self.within.replay_as(consumer, id, key).await
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, Fault> {
        self.within.discard(consumer, id).await
    }

    async fn prune(&self) -> Result<Pruned, Fault> {
        self.within.prune().await
    }
}
