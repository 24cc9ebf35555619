//! Delivery order by ordering key.

use std::time::Duration;

use idem_core::{DeliveryOrder, Source, SubscribeOptions};

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::settings::Settings;

/// Ordered by key, with immediate retries.
pub(super) fn ordered() -> Settings {
    Settings { order: DeliveryOrder::Key, ..Settings::default() }
}

/// Ordered by key, with retries later than any test.
pub(super) fn patient() -> Settings {
    Settings { retry: Settings::late().retry, ..ordered() }
}

pub(super) fn keyed(key: u64, order: Order) -> Publication {
    Publication::from(order).ordering_key(key)
}

/// Makes all rows with an attempt or a start due.
pub(super) async fn hurry<W: World>(line: &Line<W>) {
    let (inbox, earlier) = (line.world.own("inbox_messages"), W::due_earlier(Duration::from_secs(9000)));
    line.world
        .run(&format!("UPDATE {inbox} SET {earlier} WHERE state <> 'dead' AND (attempts > 0 OR crash_count > 0)"))
        .await;
}

pub(super) async fn waits<W: World>(line: &Line<W>, runs: usize) {
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == runs)).await.unwrap();
}

/// Publishes messages that the broker then marks as redelivered.
async fn again<W: World>(line: &Line<W>, orders: impl IntoIterator<Item = Order>) {
    let mut queue = line.queue.clone();
    queue.subscribe(SubscribeOptions::new("billing", 100)).await.unwrap();
    for order in orders {
        line.publish(order);
        soon(queue.next()).await.unwrap();
    }
    queue.close().await;
}

/// Waits until this message has begun `runs` times.
pub(super) async fn runs<W: World>(line: &Line<W>, id: &str, runs: usize) {
    until(async || line.desk.runs(id) >= runs).await;
}

/// Waits a while. There is no signal that something will not begin; anything that could has begun by then.
pub(super) async fn a_while() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// A failing message is retried in its place.
pub async fn a_key_keeps_its_order_over_failures<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Fail, Act::Panic, Act::Ok]));
    line.publish(Order::ok("b"));
    line.publish(Order::new("c", &[Act::Fail, Act::Ok]));
    line.publish(Order::ok("d"));
    let settings = Settings { order: DeliveryOrder::Queue, ..ordered() };
    let outcomes = line.run_with(settings, 7).await;
    assert_eq!(line.desk.log(), ["a", "a", "a", "b", "c", "c", "d"]);
    assert_eq!(
        outcomes,
        ["scheduled 1", "scheduled 2", "processed", "processed", "scheduled 1", "processed", "processed"]
    );
    assert_eq!(line.queue.counts().acks, 4);
}

/// Otherwise the messages behind it would wait for as long, unstored, and the broker might delete them.
pub async fn a_time_that_an_error_names_is_no_longer_than_the_policy_allows_in_an_order<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::RetryAfter, Act::Ok]));
    line.publish(Order::ok("b"));
    assert_eq!(line.run_with(ordered(), 3).await, ["scheduled 1", "processed", "processed"]);
    assert_eq!(line.desk.log(), ["a", "a", "b"]);
}

/// While a message waits for its next attempt, unacked, nothing of its ordering key begins; other keys go on.
pub async fn other_keys_go_on_while_one_waits<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(keyed(1, Order::new("a", &[Act::Fail, Act::Ok])));
    line.publish(keyed(1, Order::ok("b")));
    let worker = line.start_with(patient());
    assert_eq!(line.outcomes(1).await, ["scheduled 1"]);
    for id in ["x", "y", "z"] {
        line.publish(keyed(2, Order::ok(id)));
    }
    line.outcomes(4).await;
    a_while().await;
    assert_eq!(line.desk.log(), ["a", "x", "y", "z"]);
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.unsettled), (3, 2), "what waits is not acked");
    hurry(&line).await;
    line.outcomes(6).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "x", "y", "z", "a", "b"]);
}

/// More messages of one key than there are lanes wait for the running one; messages of other keys run meanwhile.
pub async fn a_hot_key_costs_one_lane<W: World>(world: W) {
    // Where one transaction writes at a time, nothing could run concurrently with it anyway.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    line.publish(keyed(1, Order::new("a", &[Act::Wait])));
    let behind: Vec<String> = (0..5).map(|n| format!("b{n}")).collect();
    for id in &behind {
        line.publish(keyed(1, Order::ok(id)));
    }
    for id in ["x", "y", "z"] {
        line.publish(keyed(2, Order::ok(id)));
    }
    let worker = line.start_with(Settings { concurrency: 2, ..ordered() });
    assert_eq!(line.outcomes(3).await, ["processed"; 3]);
    // The first message of key 1 begins before or after that of key 2: each has a lane to run in.
    let log = || line.desk.log().into_iter().filter(|id| id != "a").collect::<Vec<_>>();
    assert_eq!(log(), ["x", "y", "z"]);
    line.desk.go.send_replace(true);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(log()[3..], behind);
}

/// Messages that wait for their next attempt occupy no lane, however many there are.
pub async fn a_delivery_that_waits_for_its_row_occupies_no_lane<W: World>(world: W) {
    let line = Line::new(world).await;
    for n in 0..5 {
        line.publish(keyed(n, Order::new(&format!("fails {n}"), &[Act::Fail, Act::Ok])));
        line.publish(keyed(n, Order::ok(&format!("behind {n}"))));
    }
    for id in ["x", "y", "z"] {
        line.publish(keyed(9, Order::ok(id)));
    }
    let worker = line.start_with(Settings { concurrency: 2, ..patient() });
    assert_eq!(sorted(line.outcomes(8).await), [["processed"; 3].as_slice(), &["scheduled 1"; 5]].concat());
    let log = line.desk.log();
    assert!(!log.iter().any(|id| id.starts_with("behind")), "{log:?}");
    hurry(&line).await;
    worker.stop_once_idle(&line.queue).await;
    for n in 0..5 {
        assert_eq!(line.desk.runs(&format!("behind {n}")), 1);
    }
}

/// Dead at once, by its last attempt, undecodable, or in conflict: the ordering key goes on.
pub async fn a_dead_letter_lets_its_key_go_on<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Permanent]));
    line.publish(Order::new("b", &[Act::Fail]));
    line.publish(Publication::new("no JSON"));
    line.publish(Order::ok("c"));
    line.publish(Order::new("c", &[Act::Ok, Act::Ok]));
    line.publish(Order::ok("d"));
    let outcomes = line.run_with(ordered(), 10).await;
    assert_eq!(line.desk.log(), ["a", "b", "b", "b", "b", "b", "c", "d"]);
    assert_eq!(outcomes[5..], ["dead: exhausted", "dead: undecodable", "processed", "dead: conflict", "processed"]);
    assert_eq!(line.queue.counts().acks, 6);
}

/// Behind two outcomes: a row, its delivery, which it wakes, and the next message of their key. The row reports its outcome
/// beside those that it has woken.
pub(super) async fn rest_are_done<W: World>(line: &Line<W>) {
    assert_eq!(sorted(line.outcomes(5).await.split_off(2)), ["duplicate", "processed", "processed"]);
}

/// In an ordered queue, a claim with a waiting row is not a duplicate: a partition's next owner must not run the second
/// message before the first, neither while the row is scheduled nor while it runs.
pub async fn a_key_waits_for_the_row_of_a_known_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let a = Order::new("a", &[Act::Fail, Act::Wait]);
    line.publish(a.clone());
    // Unordered, so that it is acked while its row waits.
    line.run_with(Settings { order: DeliveryOrder::None, ..patient() }, 1).await;
    line.publish(keyed(1, a));
    line.publish(keyed(1, Order::ok("b")));
    line.publish(keyed(2, Order::ok("x")));
    let worker = line.start_with(patient());
    assert_eq!(line.outcomes(2).await, ["scheduled 1", "processed"]);
    a_while().await;
    assert_eq!(line.desk.log(), ["a", "x"]);
    hurry(&line).await;
    waits(&line, 1).await;
    a_while().await;
    assert_eq!((line.desk.log().len(), line.queue.counts().acks), (3, 2));
    line.desk.go.send_replace(true);
    rest_are_done(&line).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "x", "a", "b"]);
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
}

/// Redelivered messages run from the inbox, each in its turn.
pub async fn a_redelivered_message_keeps_its_order<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("known"));
    line.run(1).await;
    let failing = Order::new("b", &[Act::Fail, Act::Ok]);
    again(&line, [Order::ok("a"), Order::ok("known"), failing, Order::ok("c")]).await;
    line.run_with(ordered(), 9).await;
    assert_eq!(line.desk.log(), ["known", "a", "b", "b", "c"]);
    assert_eq!(line.queue.counts().stored, 3, "those that had no claim are reported to the source");
}

/// The run of a row wakes its ordering key, without waiting for a poll.
pub async fn a_key_is_woken_when_its_row_has_run<W: World>(world: W) {
    let line = Line::new(world).await;
    again(&line, ["a", "b", "c"].map(Order::ok)).await;
    let worker = line.start_with(Settings { poll: Duration::from_secs(3600), ..ordered() });
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log(), ["a", "b", "c"]);
}

/// Several workers, ordering keys and failures.
pub async fn keys_keep_their_order_over_two_workers<W: World>(world: W) {
    let line = Line::new(world).await;
    let keys = 3;
    for n in 0..45_u64 {
        let acts: &[Act] = if n % 7 == 3 { &[Act::Fail, Act::Ok] } else { &[Act::Ok] };
        line.publish(keyed(n % keys, Order::new(&format!("{}-{n:02}", n % keys), acts)));
    }
    let workers = [line.start_with(ordered()), line.start_with(ordered())];
    soon(line.queue.idle()).await;
    for worker in workers {
        worker.stop().await;
    }
    for key in 0..keys {
        let prefix = format!("{key}-");
        let mut log = line.desk.log().into_iter().filter(|id| id.starts_with(&prefix)).collect::<Vec<_>>();
        log.dedup();
        assert!(log.is_sorted() && log.len() == 15, "{log:?}");
    }
}

/// Messages that are stored and run when due keep no order.
pub async fn an_order_refuses_the_inbox<W: World>(world: W) {
    let line = Line::new(world).await;
    let refused = line.start_with(ordered()).refused().await;
    assert!(refused.contains(".inbox()") && refused.contains("order"), "{refused}");
}

/// A source that has no redelivery mark counts messages that had no claim and were stored before their first run.
pub async fn a_stored_message_is_reported_to_the_source<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("direct"));
    line.publish(Order::new("fails", &[Act::Fail, Act::Ok]));
    line.run(3).await;
    assert_eq!(line.queue.counts().stored, 0);
    line.publish_redelivered(Order::ok("redelivered")).await;
    line.run(5).await;
    assert_eq!(line.queue.counts().stored, 1);
    line.publish_redelivered(Order::ok("redelivered")).await;
    line.run(6).await;
    assert_eq!(line.queue.counts().stored, 1, "it had a claim");
}
