//! Messages that were delivered often: a broker may drop them after a few more deliveries, so they are stored before others.

use std::time::Duration;

use idem_core::{Delivery, DeliveryOrder, RetryPolicy};
use tokio::sync::watch;

use crate::soon;
use crate::store::World;
use idem_test::Publication;
use idem_test::tap::{Tap, Tapped};

use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// How many messages are received before the urgent one, and are not stored yet.
const OTHERS: usize = 20;

/// The database is slow. The worker has received 20 redelivered messages, and then one that was delivered five times. That
/// one is in the next batch that is stored; each batch has room for four of these messages.
pub async fn a_message_delivered_five_times_is_stored_before_others<W: World>(world: W) {
    let line = Line::new(world).await;
    let store = SlowStore::default();
    let worker = store.start(&line, Settings { concurrency: 2 * OTHERS, ..Settings::default() });
    // In inbox mode two batches are stored at once, if the database has several writers.
    let busy = if line.world.inbox() && W::FEATURES.concurrent { 2 } else { 1 };
    for n in 0..busy {
        line.publish(Order::ok(&format!("busy {n}")));
        soon(store.claims.subscribe().wait_for(|claims| claims.len() > n)).await.unwrap();
    }
    publish_behind_others(&line, 900_000);
    soon(line.queue.delivered(busy + OTHERS + 2)).await;
    store.open.send_replace(true);
    let all = busy + OTHERS + 2;
    soon(store.claims.subscribe().wait_for(|claims| claims.len() >= all)).await.unwrap();
    store.is_among_the_first(busy, 8);
    soon(line.queue.idle()).await;
    // In inbox mode, messages run after their acks.
    soon(async {
        while line.effects("urgent").await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    worker.stop().await;
    assert_eq!(line.effects("urgent").await, 1);
}

/// All wait for their turn behind a message that has failed. They are stored ahead of it, one at a time.
pub async fn a_message_delivered_five_times_is_stored_before_others_that_wait_for_their_turn<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        return;
    }
    let line = Line::new(world).await;
    let store = SlowStore::default();
    let hour = Duration::from_secs(3600);
    let retry = RetryPolicy::new().min_delay(hour).max_delay(hour);
    let worker = store.start(&line, Settings { order: DeliveryOrder::Key, retry, ..Settings::default() });
    line.publish(Order::new("first", &[Act::Fail]));
    assert_eq!(line.outcomes(1).await, ["scheduled 1"]);
    line.publish(Order::ok("busy"));
    soon(store.claims.subscribe().wait_for(|claims| claims.len() == 1)).await.unwrap();
    publish_behind_others(&line, 0);
    // Each is looked up before it waits to be stored, one after another.
    soon(store.looked_up.subscribe().wait_for(|key| key == "last")).await.unwrap();
    store.open.send_replace(true);
    soon(store.claims.subscribe().wait_for(|claims| claims.len() == 1 + OTHERS + 2)).await.unwrap();
    store.is_among_the_first(1, 1);
    worker.crash().await;
}

/// Publishes the others, the urgent message, and one more, each with so many bytes of padding.
fn publish_behind_others<W: World>(line: &Line<W>, padding: usize) {
    let others = (0..OTHERS).map(|n| n.to_string());
    for id in others.chain(["urgent".to_owned(), "last".to_owned()]) {
        let mut payload = serde_json::to_vec(&Order::ok(&id)).unwrap();
        payload.resize(payload.len() + padding, b' ');
        line.publish(Publication::new(payload));
    }
}

/// A store whose claims wait until the test opens it, except that of the message `first`.
#[derive(Default)]
struct SlowStore {
    open: watch::Sender<bool>,
    /// The keys that were claimed, in order, without `first`.
    claims: watch::Sender<Vec<String>>,
    /// The key that was looked up last, without `first`.
    looked_up: watch::Sender<String>,
}

impl SlowStore {
    /// Starts a worker that gets every message but `first` as redelivered.
    fn start<W: World>(&self, line: &Line<W>, settings: Settings) -> Running {
        let (open, claims, looked_up) = (self.open.clone(), self.claims.clone(), self.looked_up.clone());
        let hook = move |method: &'static str, key: &[u8]| {
            let key = String::from_utf8_lossy(key).into_owned();
            match method {
                "claim" if key != "first" => {
                    claims.send_modify(|claims| claims.push(key));
                    return Do::Wait(open.subscribe());
                }
                // The row of `first` is looked up again at each poll.
                "is_scheduled" if key != "first" => drop(looked_up.send_replace(key)),
                _ => {}
            }
            Do::Work
        };
        line.start_over_at(Tapped::new(line.queue.clone(), DeliveredOften), hook, settings)
    }

    /// Asserts that the urgent message is among the `most` that were claimed first after those `busy` ones.
    fn is_among_the_first(&self, busy: usize, most: usize) {
        let claims = self.claims.borrow();
        let at = claims.iter().position(|key| key == "urgent").unwrap();
        assert!((busy..busy + most).contains(&at), "{claims:?}");
    }
}

/// Marks the message `urgent` as delivered five times before, and all others but `first` as delivered once.
struct DeliveredOften;

impl Tap for DeliveredOften {
    type Ack = ();

    fn receive(&mut self, delivery: Delivery) -> (Delivery, ()) {
        let order: Order = serde_json::from_slice(delivery.payload()).unwrap();
        let count = match order.id.as_str() {
            "first" => 0,
            "urgent" => 5,
            _ => 1,
        };
        (delivery.with_redelivered(count > 0).with_delivery_count(Some(count)), ())
    }
}
