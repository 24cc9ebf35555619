//! What it takes to settle a batch: about as much as to settle one delivery.
//!
//! That each delivery of a batch comes to its ack, whatever becomes of the acks of the others, is a case of `crash`.

use std::time::{Duration, Instant};

use idem::Source;
use idem_faults::{Act, Kafka, Mode, Nats, RabbitMq, Running, Scene, Site, orders};

use crate::everywhere::run;

const BATCH: usize = 100;

/// A worker with one lane, which takes all of a batch together, however slowly it comes.
async fn start<S: Site>(scene: &Scene<S>) -> Running
where
    S::Source: Source,
{
    let worker =
        |worker: idem_faults::Tuned<S::Source>| worker.in_flight(1).batch(BATCH).linger(Duration::from_secs(2));
    scene.start_from(scene.site.source().await, worker)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_written_to_rabbitmq_together() {
    run::<RabbitMq>(Mode::Batch, async |scene: &Scene<RabbitMq>| {
        let orders = orders("order", BATCH, Act::Write);
        scene.publish(&orders).await;
        let worker = start(scene).await;
        let dead = scene.ends_with(orders, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
        let (mut acks, mut writes) = (0, 0);
        for piece in scene.site.relay.said().iter().flatten() {
            let here = piece.windows(ACK.len()).filter(|bytes| *bytes == ACK).count();
            (acks, writes) = (acks + here, writes + usize::from(here > 0));
        }
        println!("{acks} acks in {writes} writes");
        assert_eq!(acks, BATCH, "not `multiple`, which would settle what still runs");
        assert!(writes <= BATCH / 2, "{acks} acks in {writes} writes");
    })
    .await;
}

/// Thirteen bytes of a method, which is number 80 of class 60: `basic.ack` (AMQP 0-9-1, 2.3.5.1 and 1.8.3.13).
const ACK: &[u8] = &[0, 0, 0, 13, 0, 60, 0, 80];

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_confirmed_by_nats_in_about_one_round_trip() {
    const ONE_WAY: Duration = Duration::from_millis(50);
    run::<Nats>(Mode::Batch, async |scene: &Scene<Nats>| {
        let orders = orders("order", BATCH, Act::Write);
        scene.publish(&orders).await;
        let worker = start(scene).await;
        scene.site.relay.delay(ONE_WAY);
        scene.effects(BATCH).await;
        let committed = Instant::now();
        scene.world.journal.processed(BATCH).await;
        let took = committed.elapsed();
        println!("{BATCH} acks, each of which is confirmed after {:?}, took {took:?}", 2 * ONE_WAY);
        assert!(took < 20 * ONE_WAY, "{took:?}");
        scene.site.relay.delay(Duration::ZERO);
        let dead = scene.ends_with(orders, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_few_commits_to_kafka() {
    run::<Kafka>(Mode::Batch, async |scene: &Scene<Kafka>| {
        // What is stored at first is settled one by one.
        let worker = scene.start_warm().await;
        let orders = orders("order", 10 * BATCH, Act::Write);
        let before = commits(scene);
        scene.publish(&orders).await;
        let start = Instant::now();
        scene.effects(10 * BATCH).await;
        let took = start.elapsed();
        let dead = scene.ends_with(orders, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
        let commits = commits(scene) - before;
        println!("{} acks within {took:?} are {commits} commits", 10 * BATCH);
        assert!((1..=BATCH).contains(&commits), "{commits}");
    })
    .await;
}

/// The number of OffsetCommit in the Kafka protocol.
const OFFSET_COMMIT: [u8; 2] = [0, 8];

/// How many offset commits Kafka was asked for. A request is its length in four bytes, and then its number in two.
fn commits(scene: &Scene<Kafka>) -> usize {
    let of_connection = |said: Vec<Vec<u8>>| {
        let (said, mut at, mut commits) = (said.concat(), 0, 0);
        while let Some(head) = said.get(at..at + 6) {
            commits += usize::from(head[4..] == OFFSET_COMMIT);
            at += 4 + u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
        }
        commits
    };
    scene.site.relay.said().into_iter().map(of_connection).sum()
}
