//! The messages that are published, and their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use idem_core::store::StoreError;
use tokio::sync::{Semaphore, watch};

use crate::soon;
use crate::store::World;
use idem_test::Reply;
use idem_test::tapped_store::{StoreTap, TappedStore};

use super::line::{Line, message, text};

/// A message is deleted once it is confirmed.
pub async fn staged_messages_are_published_and_deleted<W: World>(world: W) {
    let line = Line::new(world).await;
    line.stage([message("before")]).await;
    let relay = line.start();
    line.published(1).await;
    line.stage([message("one").key("k").header("tenant", "acme").event_type("paid"), message("two")]).await;
    let mut published = line.published(3).await;
    published.sort();
    assert_eq!(published, ["before", "one", "two"]);
    line.is_empty().await;
    let one = line.sink.published().into_iter().find(|message| text(message) == "one").unwrap();
    let expected = message("one").key("k").header("tenant", "acme").event_type("paid");
    assert_eq!((one.message(), one.attempt()), (&expected, 1));
    relay.stop().await.unwrap();
    assert_eq!(line.sink.closed(), 1);
}

/// It does not wait for its next poll.
pub async fn a_relay_is_woken_by_the_notifier<W: World>(world: W) {
    let line = Line::new(world).await;
    let relay = line.relay(line.store.clone(), line.sink.clone());
    let relay = line.start_with(relay.poll_interval(std::time::Duration::from_secs(600)));
    for n in 1..=5 {
        line.stage([message(n)]).await;
        line.published(n).await;
    }
    relay.stop().await.unwrap();
}

/// Over many transactions and keys. The sink counts calls for a key that is under way.
pub async fn messages_of_a_key_leave_in_order_and_one_at_a_time<W: World>(world: W) {
    let line = Line::new(world).await;
    let relay = line.start();
    let (keys, each) = (20, 50);
    for n in 0..each {
        line.stage((0..keys).map(|key| message(format!("{key} {n}")).key(key))).await;
    }
    line.published(keys * each).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    let mut of_key: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for message in line.sink.published() {
        let text = text(&message);
        let (key, n) = text.split_once(' ').unwrap();
        of_key.entry(key.to_owned()).or_default().push(n.to_owned());
    }
    let expected: Vec<String> = (0..each).map(|n| n.to_string()).collect();
    assert_eq!(of_key.len(), keys);
    assert!(of_key.values().all(|numbers| *numbers == expected), "each once, in order: {of_key:?}");
    assert_eq!(line.sink.overlaps(), 0);
}

/// Later messages of the key wait for it, even those that are staged meanwhile; others pass.
pub async fn a_refused_message_keeps_its_key_and_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut refusals = 2;
    line.sink.on_publish(move |message| {
        if text(message) == "a 1" && refusals > 0 {
            refusals -= 1;
            return Reply::Refuse("not yet".to_owned());
        }
        Reply::Confirm
    });
    line.stage([message("a 1").key("a"), message("a 2").key("a"), message("b").key("b"), message("c")]).await;
    let relay = line.start();
    line.stage([message("a 3").key("a")]).await;
    let published = line.published(5).await;
    let of_a: Vec<_> = published.iter().filter(|text| text.starts_with('a')).collect();
    assert_eq!(of_a, ["a 1", "a 2", "a 3"]);
    let a_1 = line.sink.published().into_iter().find(|message| text(message) == "a 1").unwrap();
    assert_eq!(a_1.attempt(), 3);
    line.is_empty().await;
    relay.stop().await.unwrap();
    assert_eq!(line.sink.overlaps(), 0);
}

/// More keys are refused than the relay publishes at once.
pub async fn many_refused_keys_stop_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|message| match text(message).starts_with("bad") {
        true => Reply::Refuse("never".to_owned()),
        false => Reply::Confirm,
    });
    line.stage((0..200).map(|n| message(format!("bad {n}")).key(n))).await;
    line.stage((0..20).map(|n| message(format!("good {n}")).key(1000 + n))).await;
    let slow = idem_core::RetryPolicy::new().max_attempts(3).min_delay(std::time::Duration::from_secs(60));
    let relay = line.relay(line.store.clone(), line.sink.clone()).concurrency(10).retry(slow);
    let relay = line.start_with(relay);
    let published = line.published(20).await;
    assert!(published.iter().all(|text| text.starts_with("good")));
    relay.stop().await.unwrap();
    assert_eq!(line.waiting().await.len(), 200);
}

/// A read that began before a message was given up finds what is behind others of its key, which are no longer here.
pub async fn a_slow_read_lets_no_message_overtake<W: World>(world: W) {
    let line = Line::new(world).await;
    let refuse = line.refusing(|text| text == "1");
    let (store, gate) = line.gated();
    line.stage(["1", "2"].map(|text| message(text).key("k"))).await;
    let once = idem_core::RetryPolicy::new().max_attempts(1);
    let relay = line.start_with(line.relay(store, line.sink.clone()).retry(once));
    soon(line.sink.wait_for(|sink| sink.calls() == 1)).await;
    gate.closed.send_replace(true);
    soon(gate.waiting.subscribe().wait_for(|waiting| *waiting >= 1)).await.unwrap();
    line.stage([message("3").key("k")]).await;
    refuse.send_replace(true);
    // The relay applies the record in the same step, and only then looks at the read.
    soon(gate.recorded.subscribe().wait_for(|recorded| *recorded >= 1)).await.unwrap();
    gate.closed.send_replace(false);
    assert_eq!(line.published(2).await, ["2", "3"]);
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// Lets as many reads pass as there are permits.
#[derive(Clone)]
struct FewReads {
    permits: Arc<Semaphore>,
    asked: watch::Sender<usize>,
    /// How often failures were recorded.
    recorded: watch::Sender<usize>,
}

impl FewReads {
    fn new(permits: usize) -> Self {
        let (asked, recorded) = (watch::Sender::new(0), watch::Sender::new(0));
        Self { permits: Arc::new(Semaphore::new(permits)), asked, recorded }
    }
}

impl StoreTap for FewReads {
    async fn before(&self, method: &'static str, _: &[u8]) -> Result<(), StoreError> {
        if method == "read_outbox" {
            self.asked.send_modify(|asked| *asked += 1);
            if let Ok(permit) = self.permits.acquire().await {
                permit.forget();
            }
        }
        if method == "failures_are_recorded" {
            self.recorded.send_modify(|recorded| *recorded += 1);
        }
        Ok(())
    }
}

/// A message without a key is given up while a read runs. It had no others to wait for it, so that read counts.
pub async fn a_message_that_is_given_up_costs_others_no_read<W: World>(world: W) {
    let line = Line::new(world).await;
    let refuse = line.refusing(|text| text == "bad");
    let reads = FewReads::new(1);
    let store = TappedStore::new(line.store.clone(), reads.clone());
    line.stage([message("bad")]).await;
    let once = idem_core::RetryPolicy::new().max_attempts(1);
    let relay = line.start_with(line.relay(store, line.sink.clone()).retry(once));
    soon(reads.asked.subscribe().wait_for(|asked| *asked >= 2)).await.unwrap();
    line.stage([message("next")]).await;
    refuse.send_replace(true);
    // As above.
    soon(reads.recorded.subscribe().wait_for(|recorded| *recorded >= 1)).await.unwrap();
    reads.permits.add_permits(1);
    assert_eq!(line.published(1).await, ["next"]);
    relay.crash().await;
}

/// A read is full of messages of a key that has failed since it began, and brings none of them. Another message is behind
/// them.
pub async fn a_message_behind_a_key_that_fails_does_not_wait_for_the_poll<W: World>(world: W) {
    let line = Line::new(world).await;
    let refuse = line.refusing(|text| text == "0");
    let reads = FewReads::new(1);
    let store = TappedStore::new(line.store.clone(), reads.clone());
    let long = std::time::Duration::from_secs(600);
    // With 8 at a time, a read brings 32.
    line.stage((0..64).map(|n| message(n).key("k")).chain([message("other")])).await;
    let retry = idem_core::RetryPolicy::new().max_attempts(3).min_delay(long).max_delay(long);
    let relay = line.relay(store, line.sink.clone()).concurrency(8).retry(retry).publish_timeout(long);
    let relay = line.start_with(relay.poll_interval(long));
    soon(reads.asked.subscribe().wait_for(|asked| *asked >= 2)).await.unwrap();
    refuse.send_replace(true);
    soon(reads.recorded.subscribe().wait_for(|recorded| *recorded >= 1)).await.unwrap();
    reads.permits.add_permits(100);
    assert_eq!(line.published(1).await, ["other"]);
    relay.crash().await;
}
