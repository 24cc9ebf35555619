//! A store that fails at the word of a test.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use idem_core::store::{
    Claimed, Claims, Committed, Cures, Fate, Fault, Filter, HandlerId, Identity, InboxRows, Kind, Level, Limit, NewRow,
    Note, Operator, Page, Promise, Pruned, Replayed, Reservation, Row, Standing, Survey, Ticket, Transactions, Undone,
    Waiting,
};
use idem_core::{BoxError, Delivery, Error, Fingerprint, Handler, Key, KeyError, Lends, Store};
use uuid::Uuid;

/// What a method does instead of its work.
pub(super) enum Do {
    Work,
    Fail(Fault),
    Panic,
    Hang,
}

/// Asked with the name of a method, and the key of the message where it is about one.
type Hook = Arc<dyn Fn(&'static str, &[u8]) -> Do + Send + Sync>;

/// Does what the store within does, unless the test says otherwise.
#[derive(Clone)]
pub(super) struct Faulty<S> {
    within: S,
    hook: Hook,
}

impl<S> Faulty<S> {
    pub(super) fn new(within: S, hook: impl Fn(&'static str, &[u8]) -> Do + Send + Sync + 'static) -> Self {
        Self { within, hook: Arc::new(hook) }
    }

    async fn ask(&self, method: &'static str, key: &[u8]) -> Result<(), Fault> {
        match (self.hook)(method, key) {
            Do::Work => Ok(()),
            Do::Fail(fault) => Err(fault),
            Do::Panic => panic!("the store panics"),
            Do::Hang => std::future::pending().await,
        }
    }
}

/// A transaction of the store within.
pub(super) struct FaultyTxn<T>(T);

impl<S: Store> Lends<FaultyTxn<S::Txn>> for Faulty<S> {
    fn lend(txn: &mut Self::Txn) -> &mut FaultyTxn<S::Txn> {
        txn
    }
}

/// The handler `H` of the store `S`, over that store as a faulty one.
pub(super) struct Over<H, S>(PhantomData<fn() -> (H, S)>);

impl<H: Handler, S: Lends<H::Connection>> Handler for Over<H, S> {
    const NAME: &'static str = H::NAME;
    const EVENT: Option<&'static str> = H::EVENT;

    type Message = H::Message;
    type Input = H::Input;
    type Params = H::Params;
    type Connection = FaultyTxn<S::Txn>;

    fn key(message: &H::Message, delivery: &Delivery) -> Result<Key, KeyError> {
        H::key(message, delivery)
    }

    fn fingerprint(delivery: &Delivery) -> Fingerprint {
        H::fingerprint(delivery)
    }

    async fn handle(input: H::Input, params: H::Params, tx: &mut FaultyTxn<S::Txn>) -> Result<(), BoxError> {
        H::handle(input, params, S::lend(&mut tx.0)).await
    }
}

impl<S: Store> Transactions for Faulty<S> {
    type Txn = FaultyTxn<S::Txn>;

    async fn ping(&self) -> Result<(), Fault> {
        self.ask("ping", &[]).await?;
        self.within.ping().await
    }

    fn reserve(&self, connections: usize) -> Result<Reservation, Error> {
        self.within.reserve(connections)
    }

    async fn begin(&self, deadline: Duration) -> Result<Self::Txn, Fault> {
        self.within.begin(deadline).await.map(FaultyTxn)
    }

    async fn between(&self, txn: &mut Self::Txn) -> Result<bool, Fault> {
        self.within.between(&mut txn.0).await
    }

    async fn commit(&self, txn: Self::Txn) -> Committed {
        self.within.commit(txn.0).await
    }

    fn lost_race(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.lost_race(error)
    }

    fn deadlocked(&self, error: &(dyn std::error::Error + 'static)) -> bool {
        self.within.deadlocked(error)
    }

    async fn rollback(&self, txn: Self::Txn) -> Result<Undone, Fault> {
        self.within.rollback(txn.0).await
    }

    fn ticket(&self, txn: &Self::Txn) -> Option<Ticket> {
        self.within.ticket(&txn.0)
    }

    async fn fate(&self, ticket: &Ticket) -> Result<Fate, Fault> {
        self.within.fate(ticket).await
    }
}

impl<S: Store> Claims for Faulty<S> {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, Fault> {
        self.within.register(consumer, names).await
    }

    async fn seen(&self, handlers: &[HandlerId]) -> Result<(), Fault> {
        self.ask("seen", &[]).await?;
        self.within.seen(handlers).await
    }

    async fn has_history(&self, consumer: &str) -> Result<bool, Fault> {
        self.within.has_history(consumer).await
    }

    async fn retention(&self, handlers: &[HandlerId]) -> Result<Vec<Option<Duration>>, Fault> {
        self.within.retention(handlers).await
    }

    async fn claim(&self, txn: &mut FaultyTxn<S::Txn>, id: &Identity, promise: Promise) -> Result<Claimed, Fault> {
        self.ask("claim", id.key.as_bytes()).await?;
        self.within.claim(&mut txn.0, id, promise).await
    }

    async fn begin_with_claim(
        &self,
        deadline: Duration,
        id: &Identity,
        promise: Promise,
    ) -> Result<(FaultyTxn<S::Txn>, Claimed), Fault> {
        self.ask("claim", id.key.as_bytes()).await?;
        let (txn, claimed) = self.within.begin_with_claim(deadline, id, promise).await?;
        Ok((FaultyTxn(txn), claimed))
    }

    async fn standing(
        &self,
        txn: &mut FaultyTxn<S::Txn>,
        handler: HandlerId,
        key: &Key,
    ) -> Result<Option<Standing>, Fault> {
        self.within.standing(&mut txn.0, handler, key).await
    }

    async fn claim_many(
        &self,
        txn: &mut FaultyTxn<S::Txn>,
        ids: &[&Identity],
        promise: Promise,
    ) -> Result<Vec<Claimed>, Fault> {
        for id in ids {
            self.ask("claim", id.key.as_bytes()).await?;
        }
        self.within.claim_many(&mut txn.0, ids, promise).await
    }

    async fn standing_many(
        &self,
        txn: &mut FaultyTxn<S::Txn>,
        ids: &[&Identity],
    ) -> Result<Vec<Option<Standing>>, Fault> {
        self.within.standing_many(&mut txn.0, ids).await
    }

    async fn known(&self, txn: &mut FaultyTxn<S::Txn>, ids: &[&Identity]) -> Result<Vec<Option<Standing>>, Fault> {
        self.within.known(&mut txn.0, ids).await
    }

    async fn reopen(&self, txn: &mut FaultyTxn<S::Txn>, handler: HandlerId, key: &Key) -> Result<(), Fault> {
        self.within.reopen(&mut txn.0, handler, key).await
    }
}

impl<S: Store> InboxRows for Faulty<S> {
    async fn insert(&self, txn: &mut FaultyTxn<S::Txn>, row: &NewRow<'_>) -> Result<(), Fault> {
        self.ask("insert", row.identity.key.as_bytes()).await?;
        self.within.insert(&mut txn.0, row).await
    }

    async fn insert_many(&self, txn: &mut FaultyTxn<S::Txn>, rows: &[NewRow<'_>]) -> Result<(), Fault> {
        for row in rows {
            self.ask("insert", row.identity.key.as_bytes()).await?;
        }
        self.within.insert_many(&mut txn.0, rows).await
    }

    async fn sight(&self, txn: &mut FaultyTxn<S::Txn>, id: &Identity) -> Result<(), Fault> {
        self.within.sight(&mut txn.0, id).await
    }

    async fn sight_many(&self, txn: &mut FaultyTxn<S::Txn>, ids: &[&Identity]) -> Result<(), Fault> {
        self.within.sight_many(&mut txn.0, ids).await
    }

    async fn start(&self, txn: &mut FaultyTxn<S::Txn>, row: &Row) -> Result<bool, Fault> {
        self.within.start(&mut txn.0, row).await
    }

    async fn start_many(&self, txn: &mut FaultyTxn<S::Txn>, rows: &[&Row]) -> Result<Vec<bool>, Fault> {
        self.within.start_many(&mut txn.0, rows).await
    }

    async fn remove(&self, txn: &mut FaultyTxn<S::Txn>, row: &Row) -> Result<bool, Fault> {
        self.within.remove(&mut txn.0, row).await
    }

    async fn survey(&self, handlers: &[HandlerId], lease: Duration) -> Result<Survey, Fault> {
        self.ask("survey", &[]).await?;
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

    async fn is_parked(&self, id: &Identity) -> Result<bool, Fault> {
        self.within.is_parked(id).await
    }

    async fn make_due(&self, id: &Identity) -> Result<(), Fault> {
        self.within.make_due(id).await
    }

    async fn unstart(&self, row: &Row) -> Result<(), Fault> {
        self.within.unstart(row).await
    }

    async fn judge(&self, handlers: &[HandlerId], lease: Duration) -> Result<u64, Fault> {
        self.within.judge(handlers, lease).await
    }
}

impl<S: Store> Operator for Faulty<S> {
    async fn level(&self, handlers: &[HandlerId]) -> Result<Level, Fault> {
        self.ask("level", &[]).await?;
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
