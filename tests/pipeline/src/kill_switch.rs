//! Queues in which each message would become a dead letter.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::{BoxError, Delivery, Handler, Health, Key, KeyError};

use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::line::Line;
use super::orders::Order;
use super::running::Running;
use super::settings::Settings;

fn unknown(n: usize) -> Publication {
    Publication::new(n.to_string()).event_type("Invoice")
}

/// Events of a type that no handler takes.
pub async fn a_queue_that_dies_whole_pauses_until_an_operator_resumes_it<W: World>(world: W) {
    pauses_and_resumes(world, unknown, ["unknown type", "Invoice"]).await;
}

/// The key is empty.
pub async fn a_queue_without_keys_pauses_until_an_operator_resumes_it<W: World>(world: W) {
    let keyless = |n: usize| Publication::from(Order::ok("")).event_type("Order").message_id(n.to_string());
    pauses_and_resumes(world, keyless, ["no key", "key"]).await;
}

/// The payload is not what the codec decodes.
pub async fn a_queue_of_another_format_pauses_until_an_operator_resumes_it<W: World>(world: W) {
    let xml = |n: usize| Publication::new(format!("<order>{n}</order>")).event_type("Order");
    pauses_and_resumes(world, xml, ["undecodable", "line 1"]).await;
}

/// Fifty of the default window of a hundred are dead. Deliveries in hand are held, neither acked nor lost; once an
/// operator resumes the worker, it goes on. The reason has these parts.
async fn pauses_and_resumes<W: World>(world: W, undeliverable: impl Fn(usize) -> Publication, parts: [&str; 2]) {
    let line = Line::new(world).await;
    (0..80).for_each(|n| line.publish_raw(undeliverable(n)));
    let settings = Settings { concurrency: 4, ..Settings::default() };
    let shown = watch::Sender::default();
    let worker = line.start_with(Settings { health: Some(shown.clone()), ..settings });
    let health = shown.borrow().clone().unwrap();
    until_paused(&line, &health).await;
    let why = health.paused().unwrap();
    assert!(parts.iter().chain(&["resume"]).all(|part| why.contains(part)), "{why}");
    assert!(!health.is_ready() && health.broker() && health.database());
    // Includes those that were running concurrently with the fiftieth.
    let dead = line.dead().await.len();
    assert!((50..80).contains(&dead), "{dead}");
    let counts = line.queue.counts();
    assert_eq!(counts.acks + counts.unsettled + counts.ready, 80);
    assert!(counts.unsettled + counts.ready > 0);

    health.resume();
    line.outcomes(80).await;
    soon(line.queue.idle()).await;
    assert!(health.is_ready());
    worker.stop().await;
    assert_eq!(line.dead().await.len(), 80);
}

/// A paused worker drains as any other, and releases its held deliveries.
pub async fn a_paused_worker_drains<W: World>(world: W) {
    let line = Line::new(world).await;
    (0..20).for_each(|n| line.publish_raw(unknown(n)));
    let (worker, _) = paused(&line).await;
    worker.stop().await;
    let dead = line.dead().await.len();
    assert!((5..20).contains(&dead), "{dead}");
    assert_eq!(line.queue.counts().ready, 20 - line.queue.counts().acks);
    line.run(20).await;
    assert_eq!(line.dead().await.len(), 20);
}

/// The next worker of the process counts from the beginning, with the same limit.
pub async fn a_paused_worker_consumes_again_after_a_restart<W: World>(world: W) {
    let line = Line::new(world).await;
    (0..20).for_each(|n| line.publish_raw(unknown(n)));
    let (worker, _) = paused(&line).await;
    worker.stop().await;
    let dead = line.dead().await.len();
    let worker = line.start_with(limited());
    until(async || line.dead().await.len() != dead).await;
    worker.stop().await;
}

/// Where the broker lets deliveries stay unsettled for a limited time, or another worker can handle them: a newer version,
/// for example.
pub async fn the_messages_of_a_paused_worker_go_to_another<W: World>(world: W) {
    let line = Line::new(world).await;
    line.broker.unsettled_limit(Duration::from_secs(2));
    (0..20).for_each(|n| line.publish_raw(unknown(n)));
    let (worker, health) = paused(&line).await;
    // Those that were being made dead letters as consumption paused are acked.
    assert!(soon(line.queue.returned()).await > 0);
    assert!(!health.broker() && health.paused().is_some());
    line.run(20).await;
    assert_eq!(line.dead().await.len(), 20);
    health.resume();
    line.publish(Order::ok("a"));
    line.outcomes(21).await;
    assert!(health.is_ready());
    worker.stop().await;
}

/// It may send any number, as long as other messages are processed.
pub async fn one_bad_producer_among_good_ones_never_pauses<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.start();
    // In waves, since undecodable and processed messages take different paths at different speeds.
    for wave in 1..=12 {
        line.publish(Order::ok(&wave.to_string()));
        (0..9).for_each(|n| line.publish_raw(unknown(10 * wave + n)));
        line.outcomes(10 * wave).await;
    }
    worker.stop_once_idle(&line.queue).await;
    let outcomes = line.outcomes(120).await;
    let dead = outcomes.iter().filter(|outcome| *outcome == "dead: unknown type").count();
    assert_eq!((dead, outcomes.iter().filter(|outcome| *outcome == "processed").count()), (108, 12));
}

/// The in-process broker has no positions, so each message would be a dead letter.
pub async fn a_key_by_position_refuses_a_broker_without_positions<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.worker();
    let refused = worker.handler::<ByPosition<W>>().run_until(std::future::ready(())).await.unwrap_err().to_string();
    assert!(
        refused.contains("by_position") && refused.contains("orders") && refused.contains("message id"),
        "{refused}"
    );
}

/// Five dead letters in a row pause the worker.
fn limited() -> Settings {
    Settings { undeliverable_limit: (5, 5), ..Settings::default() }
}

/// Starts a worker of a queue in which each message becomes a dead letter, and waits until it has paused.
async fn paused<W: World>(line: &Line<W>) -> (Running, Health) {
    let shown = watch::Sender::default();
    let worker = line.start_with(Settings { health: Some(shown.clone()), ..limited() });
    let health = shown.borrow().clone().unwrap();
    until_paused(line, &health).await;
    (worker, health)
}

async fn until_paused<W: World>(line: &Line<W>, health: &Health) {
    let paused = async {
        while health.paused().is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        // Those that were running are dead, and all others are held.
        loop {
            let dead = line.queue.counts().acks;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            if line.queue.counts().acks == dead {
                return;
            }
        }
    };
    soon(paused).await;
}

struct ByPosition<W>(PhantomData<fn() -> W>);

impl<W: World> Handler for ByPosition<W> {
    const NAME: &'static str = "by_position";
    const NEEDS_POSITION: bool = true;

    type Message = Order;
    type Input = Order;
    type Params = ();
    type Connection = W::Connection;

    fn key(_: &Order, delivery: &Delivery) -> Result<Key, KeyError> {
        Key::of(delivery.position().unwrap_or_default())
    }

    async fn handle(_: Order, (): (), _: &mut W::Connection) -> Result<(), BoxError> {
        Ok(())
    }
}
