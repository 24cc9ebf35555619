//! Tests of what the thread and the tasks share, without a client.

use futures_util::FutureExt;

use super::*;

fn orders(partition: i32) -> TopicPartition {
    TopicPartition::new(&"orders".into(), partition)
}

fn down() -> Loss {
    Loss::Broker("no broker can be reached".to_owned(), String::new())
}

#[tokio::test(start_paused = true)]
async fn brokers_that_seem_to_be_down_as_the_client_joins_are_not_lost() {
    let shared = Shared::new(16, 16, DeliveryOrder::None);
    shared.lose(down());
    let joins = async {
        tokio::time::sleep(SEEMINGLY / 2).await;
        shared.has_joined();
    };
    let (joined, ()) = tokio::join!(shared.joined(), joins);
    assert_eq!((joined, shared.is_lost()), (Ok(()), false));
}

#[tokio::test(start_paused = true)]
async fn brokers_that_stay_down_are_lost() {
    let shared = Shared::new(16, 16, DeliveryOrder::None);
    shared.lose(down());
    let began = time::Instant::now();
    assert_eq!(shared.joined().await, Err(down()));
    assert!(began.elapsed() >= SEEMINGLY);
    // A member that has joined before is not kept waiting.
    shared.has_joined();
    let again = time::Instant::now();
    assert_eq!((shared.joined().await, again.elapsed()), (Err(down()), Duration::ZERO));
}

#[tokio::test]
async fn a_source_is_notified_of_a_settled_delivery_if_a_record_waits() {
    let shared = Shared::new(16, 1, DeliveryOrder::None);
    shared.lock().assigned.assign(orders(0), None);
    shared.receive(1, vec![(0, Delivery::new("orders", "a")), (1, Delivery::new("orders", "b"))]);
    let is_notified = || shared.changed.notified().now_or_never().is_some();
    assert!(is_notified(), "records were received");
    let (first, _) = shared.next().await.unwrap();
    assert!(shared.next().now_or_never().is_none(), "only one may be unsettled");
    assert!(shared.ack(&first) && is_notified());
    let (second, _) = shared.next().await.unwrap();
    assert!(shared.ack(&second) && !is_notified(), "there is nothing to take");
}

#[tokio::test]
async fn a_source_is_notified_when_a_partition_that_was_removed_makes_room() {
    let (shared, partitions) = (Shared::new(16, 1, DeliveryOrder::None), [0, 1].map(orders));
    for (epoch, partition) in (1_u64..).zip(&partitions) {
        shared.lock().assigned.assign(partition.clone(), None);
        shared.receive(epoch, vec![(0, Delivery::new("orders", epoch.to_string()))]);
    }
    let is_notified = || shared.changed.notified().now_or_never().is_some();
    let (running, _) = shared.next().await.unwrap();
    assert!(is_notified() && shared.next().now_or_never().is_none(), "only one may be unsettled");
    shared.remove(std::slice::from_ref(&running.assignment.partition));
    assert!(is_notified() && shared.next().now_or_never().is_some());
}

/// A partition with three deliveries and room for four, whose thread is this one.
fn three() -> Shared {
    let shared = Shared::new(4, 16, DeliveryOrder::None);
    assert!(shared.thread.set(thread::current()).is_ok());
    shared.lock().assigned.assign(orders(0), None);
    shared.receive(1, (0..3).map(|offset| (offset, Delivery::new("orders", "x"))).collect());
    shared
}

fn take(shared: &Shared) -> Receipt {
    shared.next().now_or_never().unwrap().unwrap().0
}

fn is_woken() -> bool {
    let (began, longest) = (Instant::now(), Duration::from_millis(200));
    thread::park_timeout(longest);
    began.elapsed() < longest
}

#[test]
fn the_last_record_that_is_handed_out_wakes_a_thread_that_waits_for_room() {
    let shared = three();
    shared.lock().waits = Waits::Capacity;
    let woken = [(); 3].map(|()| {
        take(&shared);
        is_woken()
    });
    assert_eq!(woken, [false, false, true]);
}

#[test]
fn room_just_before_a_thread_sleeps_keeps_it_awake_once() {
    let (shared, began) = (three(), Instant::now());
    for _ in 0..3 {
        take(&shared);
    }
    shared.sleep(Duration::from_secs(60), Waits::Capacity);
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(!shared.lock().has_capacity && !is_woken(), "there is no more room since");
    shared.wake();
    shared.sleep(Duration::from_secs(60), Waits::Nothing);
    assert!(began.elapsed() < Duration::from_secs(60), "it has something to do");
}

#[test]
fn a_thread_waits_for_running_deliveries_until_they_end() {
    let (shared, began) = (three(), Instant::now());
    let (first, second) = (take(&shared), take(&shared));
    shared.lock().assigned.leave(&[orders(0)]);
    thread::scope(|scope| {
        scope.spawn(|| assert!(shared.ack(&first) && shared.leave(&second)));
        shared.finish(&[orders(0)], Duration::from_secs(60));
    });
    assert!(began.elapsed() < Duration::from_secs(60) && !shared.lock().assigned.busy(&[orders(0)]));
}
