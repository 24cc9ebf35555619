//! Copies, conflicts and redeliveries.

use std::sync::{Arc, Mutex};

use idem_core::{Acker, BoxError, Delivery, Reason, Settled};

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Tapped;
use idem_test::tap::{AckTap, Tap};

use super::faulty::Do;
use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// The simplest case.
pub async fn a_message_is_processed_and_acked<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    assert_eq!(line.run(1).await, ["processed"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a"), line.queue.counts().acks), (1, 1, 1));
    assert!(line.scheduled().await.is_empty() && line.dead().await.is_empty());
}

/// A copy that arrives after the first is acked, and its handler is not called.
pub async fn a_duplicate_is_acked_and_not_handled<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    line.run(1).await;
    line.publish(Order::ok("a"));
    line.publish(Order::ok("b"));
    assert_eq!(sorted(line.run(3).await), ["duplicate", "processed", "processed"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a"), line.queue.counts().acks), (1, 1, 3));
}

/// Starts a worker, and lists its statements about messages, each with the key.
fn listed<W: World>(line: &Line<W>) -> (Running, impl Fn(&str) -> Vec<&'static str>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = asked.clone();
    let hook = move |method: &'static str, key: &[u8]| {
        asks.lock().unwrap().push((method, String::from_utf8_lossy(key).into_owned()));
        Do::Work
    };
    let of = move |key: &str| {
        let asked = asked.lock().unwrap();
        asked.iter().filter(|(_, of)| of == key).map(|(method, _)| *method).collect::<Vec<_>>()
    };
    (line.start_over(hook, Settings::default()), of)
}

/// The answer to its claim tells that it is a duplicate, of a processed message or of a dead letter: no statement that reads or
/// locks the claim follows. One that is stored first reads the claim, and locks nothing: there is nothing to write beside it.
pub async fn a_duplicate_needs_no_second_look<W: World>(world: W) {
    let line = Line::new(world).await;
    let dead = |id: &str| Order::new(id, &[Act::Permanent]);
    let orders = || [Order::ok("processed"), dead("dead")];
    orders().into_iter().chain([dead("stored")]).for_each(|order| line.publish(order));
    line.run(3).await;
    line.publish_redelivered(dead("stored")).await;
    let (worker, of) = listed(&line);
    line.outcomes(4).await;
    for (n, order) in orders().into_iter().enumerate() {
        line.publish(order);
        line.outcomes(5 + n).await;
    }
    worker.stop().await;
    assert_eq!(line.outcomes(6).await[3..], ["duplicate"; 3]);
    assert_eq!((of("processed"), of("dead"), of("stored")), (vec!["claim"], vec!["claim"], vec!["claim", "known"]));
}

/// If prune removed the claim before the conflict is written beside it, a copy of the conflict would be a new message.
pub async fn a_conflict_locks_the_claim_beside_which_it_is_written<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    line.run(1).await;
    let (worker, of) = listed(&line);
    line.publish(Order::new("a", &[Act::Ok, Act::Ok]));
    assert_eq!(line.outcomes(2).await[1], "dead: conflict");
    worker.stop().await;
    assert_eq!(of("a"), ["claim", "claim", "known", "existing_claim", "insert"]);
}

/// Of copies in flight in one process, one is handled while the others wait in memory. Where messages are stored first,
/// the others are detected and acked while the first one runs.
pub async fn copies_at_once_are_handled_once<W: World>(world: W) {
    let line = Line::new(world).await;
    for _ in 0..5 {
        line.publish(Order::new("a", &[Act::Wait]));
    }
    let worker = line.start();
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    soon(line.queue.delivered(5)).await;
    // Copies wait without a connection: none of them shows up in the database, however often it is checked.
    for _ in 0..50 {
        assert_eq!(line.world.waiting().await.unwrap_or_default(), 0);
    }
    match line.world.inbox() {
        true => soon(line.queue.settled(5)).await,
        false => assert_eq!(line.queue.counts().acks, 0, "nothing is acked on a claim that is not committed"),
    }
    line.desk.go.send_replace(true);
    assert_eq!(sorted(line.outcomes(5).await), ["duplicate", "duplicate", "duplicate", "duplicate", "processed"]);
    soon(line.queue.settled(5)).await;
    worker.stop().await;
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// The same with two processes: the second delivery is held, and never acked because of an uncommitted claim.
pub async fn copies_at_two_workers_are_handled_once<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Wait]));
    line.publish(Order::new("a", &[Act::Wait]));
    // Each takes one of the two.
    let settings = Settings { concurrency: 1, ahead: false, ..Settings::default() };
    let workers = [line.start_with(settings.clone()), line.start_with(settings)];
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    soon(line.queue.delivered(2)).await;
    match line.world.inbox() {
        true => soon(line.queue.settled(2)).await,
        false => assert_eq!(line.queue.counts().acks, 0),
    }
    line.desk.go.send_replace(true);
    assert_eq!(sorted(line.outcomes(2).await), ["duplicate", "processed"]);
    for worker in workers {
        worker.stop().await;
    }
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// Two messages under one key: one fails while the other waits for its claim. Whichever is faster, both end up in the
/// database, as an effect or as a dead letter. Neither is taken for a copy of the other.
pub async fn a_message_that_fails_beside_another_of_its_key_is_not_lost<W: World>(world: W) {
    let line = Line::new(world).await;
    // Each takes one of the two.
    let settings = Settings { concurrency: 1, ahead: false, ..Settings::default() };
    let workers = [line.start_with(settings.clone()), line.start_with(settings)];
    for round in 0..20 {
        let id = round.to_string();
        line.publish(Order::new(&id, &[Act::Permanent]));
        line.publish(Order::ok(&id));
        line.outcomes(2 * (round + 1)).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    let effects = line.world.number(&format!("SELECT count(*) FROM {}", line.world.name("effects"))).await;
    let outcomes = line.outcomes(40).await;
    assert_eq!(effects + line.dead().await.len() as i64, 40, "effects and dead letters of 40 messages: {outcomes:?}");
}

/// While a message waits for its next attempt, a copy of it already is a duplicate.
pub async fn a_copy_of_a_scheduled_message_is_a_duplicate<W: World>(world: W) {
    let line = Line::new(world).await;
    let order = Order::new("a", &[Act::Fail, Act::Ok]);
    line.publish(order.clone());
    assert_eq!(line.run_with(Settings::late(), 1).await, ["scheduled 1"]);
    line.publish(order);
    assert_eq!(line.run(2).await, ["scheduled 1", "duplicate"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a"), line.scheduled().await.len()), (0, 1, 1));
}

/// The ack was lost with the connection: the broker redelivers, and the claim is found.
pub async fn a_copy_after_a_lost_ack_is_a_duplicate<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.lose_acks(1);
    line.publish(Order::ok("a"));
    let worker = line.start();
    line.outcomes(1).await;
    line.broker.disconnect();
    assert_eq!(line.outcomes(2).await, ["processed", "duplicate"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// Another message under the same key: kept in full, beside the first. Copies of either are detected.
pub async fn a_conflict_is_dead_beside_the_first<W: World>(world: W) {
    let line = Line::new(world).await;
    let other = Order::new("a", &[Act::Ok, Act::Ok]);
    line.publish(Order::ok("a"));
    line.run(1).await;
    line.publish(other.clone());
    line.publish(other);
    line.publish(Order::ok("a"));
    let outcomes = line.run(4).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "dead: conflict").count(), 2, "{outcomes:?}");
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "duplicate").count(), 1, "{outcomes:?}");
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.deliveries), (Some(Reason::Conflict), 2));
    assert!(!dead.delivery.payload().is_empty());
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
}

/// Two services that share a database and an event do not see each other's claims.
pub async fn two_consumers_each_have_their_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    for consumer in ["billing", "shipping"] {
        line.publish(Order::ok("a"));
        line.publish(Order::ok("a"));
        let known = line.outcomes(0).await.len();
        let outcomes = line.run_with(Settings { consumer, ..Settings::default() }, known + 2).await;
        let processed = outcomes[known..].iter().filter(|outcome| *outcome == "processed").count();
        assert_eq!(processed, 1, "{consumer}: {outcomes:?}");
    }
    assert_eq!(line.effects("a").await, 2);
}

/// A process may have died on a redelivered message, and only the inbox counts that: it is stored first and then run.
pub async fn redelivered_messages_are_stored_before_they_run<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_redelivered(Order::ok("a")).await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 1));
    line.publish_redelivered(Order::ok("a")).await;
    line.runs_to(Settings::default(), &["duplicate"]).await;
    assert_eq!(line.effects("a").await, 1);
}

/// With any outcome of a message, its ack is sent after the commit is visible through another connection.
pub async fn never_acks_before_commit<W: World>(world: W) {
    let line = Line::new(world).await;
    let acts = [Act::Ok, Act::Fail, Act::Permanent, Act::Panic, Act::Rollback, Act::Commit, Act::Swallow];
    for (n, act) in acts.into_iter().enumerate() {
        line.publish(Order::new(&n.to_string(), &[act]));
    }
    line.publish(idem_test::Publication::new("no JSON"));
    line.publish_redelivered(Order::ok("redelivered")).await;
    let messages = acts.len() + 2;
    let witness = Witness::new(&line.world);
    let acks = witness.acks();
    // Handlers run one after the other, so that the number of messages taken over identifies the current one.
    let one_by_one = Settings { concurrency: 1, ahead: false, ..Settings::default() };
    let worker = line.start_at(Tapped::new(line.queue.clone(), witness), one_by_one);
    soon(line.queue.settled(messages)).await;
    worker.stop().await;
    let taken_over = acks.lock().unwrap().clone();
    assert_eq!(taken_over.len(), messages);
    for (n, taken_over) in taken_over.into_iter().enumerate() {
        assert!(taken_over > n as i64, "ack {n} was sent while {taken_over} messages were taken over");
    }
}

/// Counts the messages taken over in the database before each ack.
pub(super) struct Witness<W> {
    world: Arc<W>,
    acks: Arc<Mutex<Vec<i64>>>,
}

impl<W> Witness<W> {
    pub(super) fn new(world: &Arc<W>) -> Self {
        Self { world: Arc::clone(world), acks: Arc::default() }
    }

    /// The counts, one per ack.
    pub(super) fn acks(&self) -> Arc<Mutex<Vec<i64>>> {
        Arc::clone(&self.acks)
    }
}

impl<W: World> Tap for Witness<W> {
    type Ack = Self;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Self) {
        (delivery, Self { world: Arc::clone(&self.world), acks: self.acks() })
    }
}

impl<W: World> AckTap for Witness<W> {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let (claims, inbox) = (self.world.own("processed_messages"), self.world.own("inbox_messages"));
        let claimless = format!("SELECT count(*) FROM {inbox} WHERE length(key) = 0");
        let taken_over = format!("SELECT (SELECT count(*) FROM {claims}) + ({claimless})");
        let taken_over = self.world.number(&taken_over).await;
        self.acks.lock().unwrap().push(taken_over);
        acker.ack().await
    }
}
