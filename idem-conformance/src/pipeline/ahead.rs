//! Messages that a worker with an order has stored ahead of their turn, after the order was taken away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use idem_core::{DeliveryOrder, RetryPolicy};
use tokio::sync::watch;

use crate::soon;
use crate::store::World;
use idem_test::Broker;
use idem_test::tap::Tapped;

use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::redelivered::{Again, stored, until};
use super::settings::Settings;

const HOUR: Duration = Duration::from_secs(3600);

/// The broker delivers it again: that makes its row due.
pub async fn without_an_order_what_was_stored_ahead_runs_as_it_comes_again<W: World>(world: W) {
    let line = ahead(world).await;
    due(&line).await;
    let second = line.start();
    processed(&line).await;
    second.stop().await;
    assert_eq!(line.queue.counts().acks, 2);
}

/// A copy of it that is not marked as redelivered makes its row due as well.
pub async fn without_an_order_a_copy_makes_what_was_stored_ahead_due<W: World>(world: W) {
    let line = ahead(world).await;
    due(&line).await;
    let elsewhere = Broker::new();
    elsewhere.publish("orders", idem_test::Publication::from(Order::ok("redelivered")).event_type("Order"));
    let second = line.start_at(elsewhere.queue("orders"), Settings::default());
    processed(&line).await;
    second.stop().await;
}

/// The broker has dropped it. The row is made due unless a worker with the order may still wait for its turn.
pub async fn without_an_order_what_was_stored_ahead_runs_although_it_never_comes_again<W: World>(world: W) {
    let line = ahead(world).await;
    due(&line).await;
    let elsewhere = Broker::new();
    let second = line.start_at(elsewhere.queue("orders"), Settings::default());
    line.outcomes(2).await;
    second.stop().await;
    assert_eq!(line.effects("redelivered").await, 0, "a worker may wait for its turn");
    let (inbox, earlier) = (line.world.own("inbox_messages"), W::earlier("due_at", HOUR));
    line.world.run(&format!("UPDATE {inbox} SET due_at = {earlier}")).await;
    let third = line.start_at(elsewhere.queue("orders"), Settings::default());
    processed(&line).await;
    third.stop().await;
}

/// A worker with the order that waits for the turn of a stored message renews its row's due time.
pub async fn a_row_that_waits_for_its_turn_is_kept_from_becoming_due<W: World>(world: W) {
    let line = ahead(world).await;
    let inbox = line.world.own("inbox_messages");
    let late = async |by| {
        let due = W::earlier("due_at", by);
        line.world.number(&format!("SELECT count(*) FROM {inbox} WHERE attempts = 0 AND {due} > created_at")).await
    };
    let earlier = W::earlier("due_at", 24 * HOUR);
    line.world.run(&format!("UPDATE {inbox} SET due_at = {earlier} WHERE attempts = 0")).await;
    assert_eq!(late(150 * HOUR).await, 0);
    let second = line.start_with(ordered());
    soon(async {
        while late(150 * HOUR).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    second.stop().await;
}

/// A process that lives short would otherwise claim those that are stored again, and end before it comes to the others.
pub async fn a_stored_message_is_not_claimed_again_before_its_turn<W: World>(world: W) {
    let line = ahead(world).await;
    let (claims, reads) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(0));
    let hook = {
        let (claims, reads) = (claims.clone(), reads.clone());
        move |method: &'static str, _: &[u8]| {
            match method {
                "claim" => drop(claims.fetch_add(1, SeqCst)),
                "is_scheduled" => reads.send_modify(|reads| *reads += 1),
                _ => {}
            }
            Do::Work
        }
    };
    let second = line.start_over(hook, ordered());
    // One for each message as it is received, and one for the first as it has its turn.
    soon(reads.subscribe().wait_for(|reads| *reads >= 3)).await.unwrap();
    second.stop().await;
    assert_eq!(claims.load(SeqCst), 0);
}

fn ordered() -> Settings {
    let retry = RetryPolicy::new().min_delay(HOUR).max_delay(HOUR);
    Settings { order: DeliveryOrder::Key, retry, ..Settings::default() }
}

/// A worker with an order whose first message has failed has crashed after it stored the second one. Both are due much later.
async fn ahead<W: World>(world: W) -> Line<W> {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Fail, Act::Ok]));
    line.publish(Order::ok("redelivered"));
    let first = line.start_at(Tapped::new(line.queue.clone(), Again::new()), ordered());
    stored(&line).await;
    line.outcomes(1).await;
    first.crash().await;
    assert_eq!(line.desk.log(), ["a"]);
    line
}

/// Makes the first message due.
async fn due<W: World>(line: &Line<W>) {
    let (inbox, earlier) = (line.world.own("inbox_messages"), W::earlier("due_at", 3 * HOUR));
    line.world.run(&format!("UPDATE {inbox} SET due_at = {earlier} WHERE attempts > 0")).await;
}

async fn processed<W: World>(line: &Line<W>) {
    let claims = line.world.own("processed_messages");
    until(line, 2, &format!("SELECT count(*) FROM {claims} WHERE processed_at IS NOT NULL")).await;
    assert_eq!((line.effects("a").await, line.effects("redelivered").await), (1, 1));
}
