//! A worker on a store.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant, SystemTime};

use idem_core::key_value::{
    Acquired, BestEffort, Completed, Held, Id, KeyValue, KeyValueStore, Letter, LetterFilter, Resolve,
};
use idem_core::store::{Answer, StoreError};
use idem_core::{
    BoxError, Delivery, Engine, Error, Fingerprint, Handler, HasConnection, Json, Key, KeyError, Reason, RetryPolicy,
    State, WithHandlers, Worker, retry_after,
};
use idem_test::{Broker, Publication, Queue};
use serde::Deserialize;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::World;
use super::world::{id, unique};

const RETENTION: Duration = Duration::from_secs(24 * 3600);

#[derive(Deserialize)]
struct Order {
    id: String,
    #[serde(default)]
    does: String,
}

/// What the handlers of a test share.
#[derive(Default)]
struct Shared {
    counter: String,
    runs: AtomicUsize,
    started: Notify,
    /// Lets a handler go on that waits.
    gate: Notify,
}

impl Shared {
    async fn enter(&self, order: &Order) {
        self.runs.fetch_add(1, SeqCst);
        self.started.notify_one();
        if order.does == "wait" {
            self.gate.notified().await;
        }
    }
}

/// Writes to the store by what the message says.
struct Reserve<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for Reserve<W> {
    const NAME: &'static str = "reserve";
    type Message = Order;
    type Input = Order;
    type Params = (State<Arc<Shared>>,);
    type Connection = W::Writes;

    fn key(order: &Order, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&order.id)
    }

    async fn handle(order: Order, (State(shared),): Self::Params, writes: &mut W::Writes) -> Result<(), BoxError> {
        shared.enter(&order).await;
        W::count(writes, &shared.counter);
        match order.does.as_str() {
            "fail" => return Err("no stock".into()),
            "later" => return Err(retry_after(RETENTION, "the service is busy")),
            "refuse" => W::refuse(writes, &shared.counter),
            "half" => W::fail(writes, &shared.counter),
            _ => {}
        }
        Ok(())
    }
}

/// Has an effect elsewhere.
struct Index;

impl Handler for Index {
    const NAME: &'static str = "reserve";
    type Message = Order;
    type Input = Order;
    type Params = (State<Arc<Shared>>,);
    type Connection = BestEffort;

    fn key(order: &Order, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(&order.id)
    }

    async fn handle(order: Order, (State(shared),): Self::Params, _: &mut BestEffort) -> Result<(), BoxError> {
        shared.enter(&order).await;
        Ok(())
    }
}

/// A worker over a queue in memory.
struct Line {
    broker: Broker,
    consumer: String,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<Result<(), Error>>>,
    outcomes: mpsc::UnboundedReceiver<String>,
}

type Ready<E> = Worker<E, Queue, Arc<Shared>, Json, WithHandlers>;

impl Line {
    fn start<E: HasConnection<H::Connection>, H>(engine: E, tune: impl FnOnce(Ready<E>) -> Ready<E>) -> Self
    where
        H: Handler<Message = Order, Params = (State<Arc<Shared>>,)>,
    {
        let (broker, consumer) = (Broker::new(), unique("c"));
        let shared = Arc::new(Shared { counter: unique("n"), ..Shared::default() });
        let (report, outcomes) = mpsc::unbounded_channel();
        let worker = Worker::new(&*consumer, engine, broker.queue("orders"))
            .state(shared.clone())
            .handler::<H>()
            .retry(RetryPolicy::new().max_attempts(3).min_delay(Duration::from_millis(5)).factor(1.0))
            .observe(move |observed| {
                let outcome = match observed.outcome {
                    idem_core::Outcome::Dead { reason, .. } => reason.as_str(),
                    outcome => outcome.as_str(),
                };
                let _ = report.send(outcome.to_owned());
            });
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = tune(worker);
        let task = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
        Self { broker, consumer, shared, stop: Some(stop), task: Some(task), outcomes }
    }

    fn publish(&self, id: &str, does: &str) {
        self.broker.publish("orders", Self::publication(id, does));
    }

    fn publication(id: &str, does: &str) -> Publication {
        Publication::new(format!(r#"{{"id":"{id}","does":"{does}"}}"#))
    }

    async fn outcome(&mut self) -> String {
        crate::soon(self.outcomes.recv()).await.unwrap()
    }

    fn runs(&self) -> usize {
        self.shared.runs.load(SeqCst)
    }

    async fn stop(&mut self) -> Result<(), Error> {
        drop(self.stop.take());
        let task = self.task.take().unwrap();
        crate::soon(task).await.unwrap()
    }

    /// The only dead letter.
    async fn letter(&self, store: &impl KeyValueStore) -> Letter {
        let mut dead = store.dead(&LetterFilter::new().consumer(&*self.consumer)).await.unwrap();
        assert_eq!(dead.len(), 1, "{dead:?}");
        dead.pop().unwrap()
    }
}

fn start<W: World>(world: &W) -> Line {
    Line::start::<_, Reserve<W>>(world.engine(RETENTION), |worker| worker)
}

fn print(id: &str, does: &str) -> Fingerprint {
    Fingerprint::of(Line::publication(id, does).payload())
}

/// The effect of a message is there once.
pub async fn a_message_is_processed_once_and_its_copies_are_duplicates<W: World>(world: W) {
    let mut line = start(&world);
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "processed");
    for _ in 0..3 {
        line.publish("e-1", "");
        assert_eq!(line.outcome().await, "duplicate");
    }
    line.publish("e-2", "");
    assert_eq!(line.outcome().await, "processed");
    assert_eq!((line.runs(), world.counted(&line.shared.counter).await), (2, 2));
    line.broker.idle().await;
    line.stop().await.unwrap();
}

/// It has all its attempts, writes nothing, and is kept whole; once it is replayed, a copy of it runs.
pub async fn a_failing_message_runs_again_and_then_is_a_dead_letter<W: World>(world: W) {
    let mut line = start(&world);
    line.publish("e-1", "fail");
    assert_eq!(line.outcome().await, "exhausted");
    assert_eq!((line.runs(), world.counted(&line.shared.counter).await), (3, 0));
    let letter = line.letter(&world.store()).await;
    assert_eq!((letter.reason, letter.attempts, letter.error.as_str()), (Reason::Exhausted, 3, "no stock"));
    assert_eq!(letter.delivery.payload(), Line::publication("e-1", "fail").payload());
    line.publish("e-1", "fail");
    assert_eq!(line.outcome().await, "duplicate");
    // An operator has repaired the cause, and publishes it again.
    assert!(world.store().resolve(&letter.id, Resolve::Replay, RETENTION).await.unwrap());
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "processed");
    line.broker.idle().await;
    line.stop().await.unwrap();
}

/// A copy neither runs beside the message nor is acked before its end.
pub async fn a_copy_waits_while_another_process_has_the_lease<W: World>(world: W) {
    let (mut line, store, token) = (start(&world), world.store(), Uuid::new_v4());
    let id = id(&line.consumer, "e-1");
    let lease = Duration::from_secs(5);
    store.acquire(&id, print("e-1", ""), token, lease, RETENTION).await.unwrap();
    line.publish("e-1", "");
    crate::soon(line.broker.queue("orders").delivered(1)).await;
    store.renew(&id, token, lease).await.unwrap();
    store.complete(&id, token, RETENTION, &W::Writes::default()).await.unwrap();
    assert_eq!(line.outcome().await, "duplicate");
    assert_eq!(line.runs(), 0);
    line.stop().await.unwrap();
}

/// Acquires a message as a process that then dies.
async fn die(store: &impl KeyValueStore, id: &Id, print: Fingerprint) {
    let token = Uuid::new_v4();
    crate::until(async || {
        let acquired = store.acquire(id, print, token, Duration::from_millis(1), RETENTION).await.unwrap();
        matches!(acquired, Acquired::New { .. })
    })
    .await;
}

/// The fifth start is none.
pub async fn a_message_that_kills_its_process_ends<W: World>(world: W) {
    let (mut line, store) = (start(&world), world.store());
    let [three, four] = ["e-3", "e-4"].map(|key| id(&line.consumer, key));
    for _ in 0..3 {
        die(&store, &three, print("e-3", "")).await;
    }
    line.publish("e-3", "");
    assert_eq!(line.outcome().await, "processed", "it has one more start");
    for _ in 0..4 {
        die(&store, &four, print("e-4", "")).await;
    }
    line.publish("e-4", "");
    assert_eq!(line.outcome().await, "crashed");
    assert_eq!((line.runs(), line.letter(&store).await.reason), (1, Reason::Crashed));
    line.stop().await.unwrap();
}

/// A message that waits for its next attempt goes back to the broker, and can be started elsewhere at once.
pub async fn a_drain_gives_the_lease_up<W: World>(world: W) {
    let slow = RetryPolicy::new().min_delay(Duration::from_secs(300)).max_delay(Duration::from_secs(300));
    let mut line = Line::start::<_, Reserve<W>>(world.engine(RETENTION), |worker| worker.retry(slow));
    line.publish("e-1", "fail");
    crate::soon(line.shared.started.notified()).await;
    line.stop().await.unwrap();
    let id = id(&line.consumer, "e-1");
    let acquired = world.store().acquire(&id, print("e-1", "fail"), Uuid::new_v4(), RETENTION, RETENTION).await;
    assert!(matches!(acquired, Ok(Acquired::New { starts: 1, .. })), "{acquired:?}");
    assert_eq!(line.broker.queue("orders").counts().ready, 1, "and the delivery is with the broker");
}

/// It is kept whole, beside the message that has the key, and its copies are duplicates.
pub async fn another_message_with_the_key_is_a_conflict<W: World>(world: W) {
    let mut line = start(&world);
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "processed");
    line.publish("e-1", "other");
    assert_eq!(line.outcome().await, "conflict");
    line.publish("e-1", "other");
    assert_eq!(line.outcome().await, "duplicate");
    let letter = line.letter(&world.store()).await;
    assert_eq!((letter.reason, line.runs()), (Reason::Conflict, 1));
    assert!(letter.id.apart.is_some());
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "duplicate", "the first one has the key");
    line.stop().await.unwrap();
}

/// A message without a key is kept whole.
pub async fn an_unreadable_message_is_a_dead_letter<W: World>(world: W) {
    let mut line = start(&world);
    line.broker.publish("orders", Publication::new("no JSON"));
    assert_eq!(line.outcome().await, "undecodable");
    let letter = line.letter(&world.store()).await;
    assert_eq!((letter.reason, &letter.delivery.payload()[..]), (Reason::Undecodable, &b"no JSON"[..]));
    line.broker.idle().await;
    line.stop().await.unwrap();
}

/// Its record may have ended, so it may have been processed.
pub async fn a_message_from_before_the_retention_is_too_old<W: World>(world: W) {
    let mut line = start(&world);
    let published = |ago: Duration| Line::publication("e-1", "").published_at(SystemTime::now() - ago);
    line.broker.publish("orders", published(RETENTION * 2));
    assert_eq!(line.outcome().await, "too old");
    line.broker.publish("orders", Line::publication("e-2", "").published_at(SystemTime::now() - RETENTION / 2));
    assert_eq!(line.outcome().await, "processed");
    assert_eq!((line.runs(), line.letter(&world.store()).await.reason), (1, Reason::TooOld));
    line.stop().await.unwrap();
}

/// They are tried again, and write nothing.
pub async fn writes_that_are_refused_are_a_failed_attempt<W: World>(world: W) {
    let mut line = start(&world);
    line.publish("e-1", "refuse");
    assert_eq!(line.outcome().await, "exhausted");
    assert_eq!((line.runs(), world.counted(&line.shared.counter).await), (3, 0));
    line.stop().await.unwrap();
}

/// They are not tried again.
pub async fn half_applied_writes_are_a_dead_letter<W: World>(world: W) {
    if !W::HALF_APPLIES {
        return;
    }
    let mut line = start(&world);
    line.publish("e-1", "half");
    assert_eq!(line.outcome().await, "half applied");
    line.publish("e-1", "half");
    assert_eq!(line.outcome().await, "duplicate");
    assert_eq!((line.runs(), world.counted(&line.shared.counter).await), (1, 1));
    assert_eq!(line.letter(&world.store()).await.reason, Reason::HalfApplied);
    line.stop().await.unwrap();
}

/// Without a crash its effect is there once.
pub async fn a_best_effort_handler_runs_once_for_all_copies<W: World>(world: W) {
    let mut line = Line::start::<_, Index>(world.engine(RETENTION), |worker| worker);
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "processed");
    line.publish("e-1", "");
    assert_eq!((line.outcome().await.as_str(), line.runs()), ("duplicate", 1));
    line.stop().await.unwrap();
}

/// A store whose first answers to two steps are lost, and whose leases end although they are renewed.
#[derive(Clone)]
struct Losing<K> {
    store: K,
    renews: bool,
    /// The renewals of this key have no answer.
    hangs: Option<Key>,
    acquired: Arc<AtomicUsize>,
    completed: Arc<AtomicUsize>,
}

impl<K> Losing<K> {
    fn of(store: K) -> Self {
        Self { store, renews: true, hangs: None, acquired: Arc::default(), completed: Arc::default() }
    }

    fn lose<T>(left: &AtomicUsize, answer: T) -> Answer<T> {
        let is_lost = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if is_lost { Err(StoreError::ConnectionLost("the answer was lost".into())) } else { Ok(answer) }
    }
}

impl<K: KeyValueStore> KeyValueStore for Losing<K> {
    type Writes = K::Writes;

    fn name(&self) -> String {
        self.store.name()
    }

    async fn check(&self, keep: Duration) -> Result<(), Error> {
        self.store.check(keep).await
    }

    async fn acquire(
        &self,
        id: &Id,
        fingerprint: Fingerprint,
        token: Uuid,
        lease: Duration,
        keep: Duration,
    ) -> Answer<Acquired> {
        Self::lose(&self.acquired, self.store.acquire(id, fingerprint, token, lease, keep).await?)
    }

    async fn renew(&self, id: &Id, token: Uuid, lease: Duration) -> Answer<Held> {
        if self.hangs.as_ref() == Some(&id.key) {
            std::future::pending::<()>().await;
        }
        if self.renews { self.store.renew(id, token, lease).await } else { Ok(Held::Yes) }
    }

    async fn complete(&self, id: &Id, token: Uuid, keep: Duration, writes: &K::Writes) -> Answer<Completed> {
        Self::lose(&self.completed, self.store.complete(id, token, keep, writes).await?)
    }

    async fn release(&self, id: &Id, token: Uuid) -> Answer<Held> {
        self.store.release(id, token).await
    }

    async fn bury(&self, id: &Id, token: Uuid, letter: &Letter) -> Answer<Held> {
        self.store.bury(id, token, letter).await
    }

    async fn dead(&self, filter: &LetterFilter) -> Answer<Vec<Letter>> {
        self.store.dead(filter).await
    }

    async fn resolve(&self, id: &Id, how: Resolve, keep: Duration) -> Answer<bool> {
        self.store.resolve(id, how, keep).await
    }
}

/// The handler runs once, and the message is processed.
pub async fn a_lost_answer_repeats_the_step_and_not_the_run<W: World>(world: W) {
    let [acquired, completed] = [2, 2].map(|lost| Arc::new(AtomicUsize::new(lost)));
    let losing = Losing { store: world.store(), renews: true, hangs: None, acquired, completed };
    let mut line = Line::start::<_, Index>(KeyValue::new(losing).retention(RETENTION), |worker| worker);
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "processed");
    assert_eq!(line.runs(), 1);
    line.publish("e-1", "");
    assert_eq!(line.outcome().await, "duplicate");
    line.broker.idle().await;
    line.stop().await.unwrap();
}

/// A run that takes longer than a lease keeps it.
pub async fn a_long_run_keeps_its_lease<W: World>(world: W) {
    let lease = Duration::from_secs(2);
    let mut line = Line::start::<_, Reserve<W>>(world.engine(RETENTION), |worker| worker.lease_duration(lease));
    line.publish("e-1", "wait");
    crate::soon(line.shared.started.notified()).await;
    let (id, began) = (id(&line.consumer, "e-1"), Instant::now());
    while began.elapsed() < lease * 2 {
        let acquired = world.store().acquire(&id, print("e-1", "wait"), Uuid::new_v4(), lease, RETENTION).await;
        assert!(matches!(acquired, Ok(Acquired::Busy { .. })), "{acquired:?}");
        tokio::time::sleep(lease / 10).await;
    }
    line.shared.gate.notify_one();
    assert_eq!(line.outcome().await, "processed");
    line.stop().await.unwrap();
}

/// One connection that is stuck ends no lease but that of its own message.
pub async fn a_renewal_that_hangs_delays_no_other<W: World>(world: W) {
    let lease = Duration::from_secs(2);
    let losing = Losing { hangs: Some(Key::of("e-1").unwrap()), ..Losing::of(world.store()) };
    let engine = KeyValue::new(losing).retention(RETENTION);
    let mut line = Line::start::<_, Index>(engine, |worker| worker.lease_duration(lease));
    for id in ["e-1", "e-2"] {
        line.publish(id, "wait");
        crate::soon(line.shared.started.notified()).await;
    }
    let (id, began) = (id(&line.consumer, "e-2"), Instant::now());
    while began.elapsed() < lease * 2 {
        let acquired = world.store().acquire(&id, print("e-2", "wait"), Uuid::new_v4(), lease, RETENTION).await;
        assert!(matches!(acquired, Ok(Acquired::Busy { .. })), "{acquired:?}");
        tokio::time::sleep(lease / 10).await;
    }
    for _ in 0..2 {
        line.shared.gate.notify_one();
        line.outcome().await;
    }
    line.stop().await.unwrap();
}

/// A run whose lease somebody else has taken over completes nothing, and its delivery is a copy.
pub async fn a_run_that_lost_its_lease_is_not_its_message_any_more<W: World>(world: W) {
    let store = world.store();
    let losing = Losing { renews: false, ..Losing::of(store.clone()) };
    let lease = Duration::from_millis(50);
    let engine = KeyValue::new(losing).retention(RETENTION);
    let mut line = Line::start::<_, Index>(engine, |worker| worker.lease_duration(lease));
    line.publish("e-1", "wait");
    crate::soon(line.shared.started.notified()).await;
    let (id, token) = (id(&line.consumer, "e-1"), Uuid::new_v4());
    crate::until(async || {
        let acquired = store.acquire(&id, print("e-1", "wait"), token, RETENTION, RETENTION).await.unwrap();
        matches!(acquired, Acquired::New { starts: 2, .. })
    })
    .await;
    line.shared.gate.notify_one();
    store.complete(&id, token, RETENTION, &W::Writes::default()).await.unwrap();
    assert_eq!((line.outcome().await.as_str(), line.runs()), ("duplicate", 1));
    line.stop().await.unwrap();
}

/// Each is refused with its name and with the stores that can do it.
pub async fn options_that_need_sql_are_refused<W: World>(world: W) {
    async fn refused<E: Engine + HasConnection<BestEffort>>(
        engine: E,
        tune: impl FnOnce(Ready<E>) -> Ready<E>,
    ) -> String {
        let mut line = Line::start::<_, Index>(engine, tune);
        let task = line.task.take().unwrap();
        match crate::soon(task).await.unwrap() {
            Err(Error::Config(text)) => text,
            other => panic!("{other:?}"),
        }
    }
    let text = refused(world.engine(RETENTION), |worker| worker.batch(10)).await;
    assert!(text.contains(".batch(..)") && text.contains("PostgreSQL"), "{text}");
    assert!(refused(world.engine(RETENTION), |worker| worker.inbox()).await.contains(".inbox()"));
    assert!(refused(world.engine(RETENTION), |worker| worker.fan_out()).await.contains(".fan_out()"));
    let text = refused(world.engine(Duration::from_secs(1)), |worker| worker).await;
    assert!(text.contains(".retention(..)"), "{text}");
}

/// Its delivery would be unacked for as long.
pub async fn a_retry_that_would_hold_a_delivery_for_long_is_refused<W: World>(world: W) {
    let hour = Duration::from_secs(3600);
    let slow = RetryPolicy::new().min_delay(hour).max_delay(hour);
    let mut line = Line::start::<_, Index>(world.engine(RETENTION), |worker| worker.retry(slow));
    let text = match crate::soon(line.task.take().unwrap()).await.unwrap() {
        Err(Error::Config(text)) => text,
        other => panic!("{other:?}"),
    };
    assert!(text.contains(".retry(..)") && text.contains("5 minutes") && text.contains("reserve"), "{text}");
}

/// A service asks for a day. Meanwhile the delivery would be unacked, so it waits for minutes. With a paused clock.
pub async fn a_long_delay_is_cut_while_its_delivery_is_held<W: World>(world: W) {
    let mut line = start(&world);
    let began = tokio::time::Instant::now();
    line.publish("e-1", "later");
    assert_eq!(line.outcomes.recv().await.unwrap(), "exhausted");
    assert_eq!(line.runs(), 3);
    let (waited, minutes) = (began.elapsed(), |number: u64| Duration::from_secs(number * 60));
    assert!(waited >= minutes(10) && waited < minutes(11), "{waited:?}");
    line.stop().await.unwrap();
}
