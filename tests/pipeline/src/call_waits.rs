//! Calls that wait for a full outbox or an orphaned row, and orphaned rows that wait for calls.

use std::time::Duration;

use idem_core::store::{ClaimState, CommitResult, Consumers, Identity, InboxRows, NewRow, Transactions};
use idem_core::{Delivery, Fingerprint, Key, Reason, Relay};
use uuid::Uuid;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::provider::Fault;
use idem_test::{MemorySink, Publication};

use super::handlers::Rows;
use super::line::Line;
use super::orders::{Act, Order};
use super::paying::{Paying, Pays};
use super::running::Running;
use super::settings::Settings;
use super::staging::Stages;
use super::watched::watched;

/// There is no signal that a call or a run does not begin. One that is not held back has begun by then.
const A_WHILE: Duration = Duration::from_millis(300);

/// Stores an order for a handler with this name: in its call phase with a key, or as a dead letter.
async fn keep<W: World>(line: &Line<W>, handler: &str, order: &Order, provider_key: Option<Uuid>) {
    let handler = line.store.register("billing", &["", handler]).await.unwrap()[1];
    let delivery = Delivery::new("orders", serde_json::to_vec(order).unwrap());
    let fingerprint = Fingerprint::of(delivery.payload());
    let identity = Identity { handler, key: Key::of(&order.id).unwrap(), fingerprint };
    let row = match provider_key {
        Some(provider_key) => NewRow::new(&identity, &delivery, Ok(Duration::ZERO)).with_call(provider_key),
        None => NewRow::new(&identity, &delivery, Err(Reason::Permanent)),
    };
    let mut txn = line.store.begin(Duration::from_secs(30)).await.unwrap();
    line.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap();
    line.store.insert(&mut txn, &[row]).await.unwrap();
    assert!(matches!(line.store.commit(txn).await, CommitResult::Done));
}

/// Stores the order `orphan`, on which two processes have died, in one step: it is never an ordinary row.
async fn orphan<W: World>(line: &Line<W>, act: Act) {
    keep(line, "rows", &Order::new("orphan", &[act]), None).await;
    let inbox = line.world.own("inbox_messages");
    let died = "state = 'scheduled', reason = NULL, died_at = NULL, crash_count = 2";
    line.world.run(&format!("UPDATE {inbox} SET {died} WHERE state = 'dead'")).await;
}

/// Starts a worker that makes calls, and takes messages that run from the inbox.
fn start<W: World>(line: &Line<W>) -> Running {
    line.run_until_stopped(line.worker().handler::<Rows<W>>().handler::<Pays<W, true, true>>(), Settings::default())
}

/// The handler behind the call stages more messages. The call is made once there is room.
pub async fn a_full_outbox_keeps_calls_waiting<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let line = &paying.0;
    let (settings, health) = watched(2);
    let settings = Settings { backlog: Some(0), relay_patience: Duration::from_millis(600), ..settings };
    let worker = line.worker().handler::<Stages<W>>().handler::<Pays<W, true, true>>();
    let worker = line.run_until_stopped(worker, settings);
    let health = health.borrow().clone().unwrap();
    line.publish_raw(Publication::from(Order::ok("staged")).event_type("Staging"));
    until(async || health.unrelayed().is_some_and(|why| why.contains("more than 0 messages"))).await;
    keep(line, "pays", &Order::ok("a"), Some(Uuid::new_v4())).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(paying.counts("a").await.1, 0);
    let relay = Relay::new("billing", line.store.clone(), MemorySink::new());
    let relay = tokio::spawn(relay.run_until(std::future::pending()));
    paying.completed("a").await;
    relay.abort();
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 1, 1));
}

/// It could end the process, and leave each call in doubt.
pub async fn an_orphan_with_the_process_to_itself_keeps_calls_waiting<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        // The orphaned row has the only writer.
        return;
    }
    let paying = Paying::<W>::new(world).await;
    let line = &paying.0;
    orphan(line, Act::Wait).await;
    let worker = start(line);
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    keep(line, "pays", &Order::ok("a"), Some(Uuid::new_v4())).await;
    tokio::time::sleep(A_WHILE).await;
    let row = paying.row(|row| row.calls.is_some()).await;
    assert_eq!((row.calls, paying.counts("a").await.1), (Some(0), 0), "it is not even fetched");
    line.desk.go.send_replace(true);
    paying.completed("a").await;
    worker.stop().await;
    assert_eq!((paying.counts("a").await, line.effects("orphan").await), ((1, 1, 1), 1));
}

/// Its end would leave them in doubt.
pub async fn an_orphan_that_needs_the_process_to_itself_waits_for_calls<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    let line = &paying.0;
    paying.publish("a", [Fault::Wait]);
    let worker = start(line);
    soon(paying.provider().waits(1)).await;
    orphan(line, Act::Ok).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(line.desk.runs("orphan"), 0);
    paying.provider().release();
    paying.completed("a").await;
    until(async || line.effects("orphan").await != 0).await;
    worker.stop().await;
    assert_eq!((paying.provider().charged("a"), line.effects("orphan").await), (1, 1));
}
