//! The cost of settling a batch: about that of settling one delivery.
//!
//! A case of `crash` tests that each delivery of a batch is acked, whatever happens to the other acks.

use std::time::{Duration, Instant};

use idem::Source;
use idem_faults::{Act, Broker, Kafka, Mode, Nats, RabbitMq, Running, Scene, Sqs, Unacked, orders, until};

use crate::everywhere::run;

const BATCH: usize = 100;

/// A worker with one lane, which takes a whole batch together, however slowly it arrives.
fn start_from<B: Broker>(scene: &Scene<B>, source: impl Source) -> Running {
    scene.start_from(source, |worker| worker.concurrency(1).batch(BATCH).linger(Duration::from_secs(5)))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_few_to_rabbitmq() {
    run::<RabbitMq>(Mode::Batch, async |scene: &Scene<RabbitMq>| {
        let (source, asked) = Unacked::new(scene.site.source().await);
        let worker = start_from(scene, source);
        until("it consumes", || async { worker.health.is_ready() }).await;
        let relay = &scene.site.relay;
        // Nothing is written until the connection is unblocked, so that all acks can be sent together.
        relay.say(&connection_method(60, b"\x03why"));
        let orders = orders("order", BATCH, Act::Write);
        scene.publish(&orders).await;
        asked.reached(BATCH).await;
        relay.say(&connection_method(61, b""));
        let dead = scene.ends_with(orders, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
        let (mut acks, mut writes) = (0, 0);
        for piece in relay.said().iter().flatten() {
            let here = piece.windows(ACK.len()).filter(|bytes| *bytes == ACK).count();
            (acks, writes) = (acks + here, writes + usize::from(here > 0));
        }
        println!("{acks} acks in {writes} writes");
        // The first ones may be sent before the others are requested. From then on, one ack settles all of them: a
        // test of the adapter shows that it settles nothing that still runs.
        assert!((1..=BATCH / 10).contains(&acks) && writes <= acks, "{acks} acks in {writes} writes");
    })
    .await;
}

/// `connection.blocked` is method 60 of class 10, `connection.unblocked` 61
/// (<https://www.rabbitmq.com/docs/connection-blocked>). The client then writes nothing, acks included.
fn connection_method(number: u8, arguments: &[u8]) -> Vec<u8> {
    let length = (4 + arguments.len() as u32).to_be_bytes();
    [&[1, 0, 0], &length[..], &[0, 10, 0, number], arguments, &[0xCE]].concat()
}

/// Thirteen bytes of a method frame, for method 80 of class 60: `basic.ack` (AMQP 0-9-1, 2.3.5.1 and 1.8.3.13).
const ACK: &[u8] = &[0, 0, 0, 13, 0, 60, 0, 80];

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_confirmed_by_nats_in_about_one_round_trip() {
    const ONE_WAY: Duration = Duration::from_millis(50);
    run::<Nats>(Mode::Batch, async |scene: &Scene<Nats>| {
        let orders = orders("order", BATCH, Act::Write);
        scene.publish(&orders).await;
        let worker = start_from(scene, scene.site.source().await);
        scene.site.relay.delay(ONE_WAY);
        scene.effects(BATCH).await;
        let committed = Instant::now();
        scene.world.journal.processed(BATCH).await;
        let took = committed.elapsed();
        println!("{BATCH} acks, each of which is confirmed after {:?}, took {took:?}", 2 * ONE_WAY);
        // A busy machine takes a while for so many acks. One after another, they would take ten seconds.
        assert!(took < 60 * ONE_WAY, "{took:?}");
        scene.site.relay.delay(Duration::ZERO);
        let dead = scene.ends_with(orders, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_few_commits_to_kafka() {
    run::<Kafka>(Mode::Batch, async |scene: &Scene<Kafka>| {
        // Messages that are stored at first are settled one by one.
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

#[tokio::test(flavor = "multi_thread")]
async fn the_acks_of_a_batch_are_few_requests_to_sqs() {
    run::<Sqs>(Mode::Batch, async |scene: &Scene<Sqs>| {
        let worker = start_from(scene, scene.site.source().await);
        let orders = orders("order", BATCH, Act::Write);
        scene.publish(&orders).await;
        let dead = scene.ends_with(orders, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
        let said = scene.site.relay.said().into_iter().map(|pieces| pieces.concat());
        let requests: usize =
            said.map(|said| said.windows(DELETE.len()).filter(|bytes| *bytes == DELETE).count()).sum();
        println!("{BATCH} acks are {requests} requests");
        // A request has ten entries at most. The last messages of a batch may come in a moment when none else waits.
        assert!((1..=BATCH / 5).contains(&requests), "{requests}");
    })
    .await;
}

/// What each request names in its head (AWS JSON 1.0 protocol, `X-Amz-Target`).
const DELETE: &[u8] = b"AmazonSQS.DeleteMessageBatch";

/// The number of OffsetCommit in the Kafka protocol.
const OFFSET_COMMIT: [u8; 2] = [0, 8];

/// How many offset commits Kafka received. A request is its length in four bytes, then its number in two.
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
