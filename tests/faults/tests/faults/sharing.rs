//! Workers that start and stop gracefully, and slow handlers.

use std::time::{Duration, Instant};

use idem::Outcome;
use idem_faults::{Act, Broker, Mode, Scene, orders};

use crate::everywhere::on_servers;

on_servers! {
    workers_that_come_and_go_in_the_middle_of_work_lose_nothing_and_double_nothing
    a_drain_under_load_leaves_the_rest_to_another_worker
    a_handler_that_runs_longer_than_the_broker_waits_keeps_its_message
}

/// On Kafka, partitions move each time.
async fn workers_that_come_and_go_in_the_middle_of_work_lose_nothing_and_double_nothing<B: Broker>(scene: &Scene<B>) {
    let orders = orders("shared", 400, Act::Take(20));
    scene.publish(&orders).await;
    let first = scene.start().await;
    scene.effects(40).await;
    let second = scene.start().await;
    scene.effects(120).await;
    first.stop().await.unwrap();
    scene.effects(160).await;
    let third = scene.start().await;
    scene.effects(240).await;
    second.crash().await;
    let dead = scene.ends_with(orders, vec![third]).await;
    assert!(dead.is_empty(), "{dead:?}");
}

async fn a_drain_under_load_leaves_the_rest_to_another_worker<B: Broker>(scene: &Scene<B>) {
    let worker = scene.start_warm().await;
    let orders = orders("drained", 300, Act::Take(20));
    scene.publish(&orders).await;
    scene.entered(50).await;
    let start = Instant::now();
    worker.stop().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "the drain took {:?}", start.elapsed());
    let ran = scene.runs();
    assert!(ran < 300, "the worker was idle when it was told to drain");
    assert_eq!(scene.world.all_effects().await.len() - B::WARM_UP, ran, "what had begun was finished");

    let worker = scene.start().await;
    let dead = scene.ends_with(orders, vec![worker]).await;
    assert!(dead.is_empty(), "{dead:?}");
    assert_eq!(scene.runs(), 300, "nothing ran two times");
}

async fn a_handler_that_runs_longer_than_the_broker_waits_keeps_its_message<B: Broker>(scene: &Scene<B>) {
    // The messages behind them also wait in this worker.
    let worker = scene.start_warm().await;
    // One after the other in a batch, and the whole batch waits.
    let slow = if scene.mode == Mode::Batch {
        orders("slow", 2, Act::Take(3500))
    } else {
        orders("slow", 16, Act::Take(7000))
    };
    let orders = [slow, orders("waiting", 16, Act::Write)].concat();
    scene.publish(&orders).await;
    let count = orders.len();
    let dead = scene.ends_with(orders, vec![worker]).await;
    assert!(dead.is_empty(), "{dead:?}");
    assert_eq!(scene.runs(), count, "a message ran two times");
    let again = scene.world.journal.count(|outcome| *outcome == Outcome::Duplicate);
    assert_eq!(again, 0, "the broker delivered {again} messages again");
}
