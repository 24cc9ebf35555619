//! Messages that RabbitMQ delivers and its client cannot read.

use idem::{DeliveryOrder, Reason};
use idem_faults::{Act, Mode, RabbitMq, Running, Scene, Tuned, orders};

use crate::raw::{BAD_ID, Raw};

/// Publishes some unreadable messages among many readable ones.
async fn publish(scene: &Scene<RabbitMq>, each: usize) {
    let mut raw = Raw::connect(&scene.site.address).await;
    for part in 0..3 {
        scene.publish(&orders(&format!("good-{part}"), each, Act::Write)).await;
        raw.publish(&scene.site.name, BAD_ID, format!("bad-{part}").as_bytes()).await;
    }
    scene.publish(&orders("good-3", each, Act::Write)).await;
}

async fn ends(scene: &Scene<RabbitMq>, each: usize, worker: Running) {
    let good = (0..4).flat_map(|part| orders(&format!("good-{part}"), each, Act::Write));
    let dead = scene.ends_with(good, vec![worker]).await;
    let mut payloads: Vec<_> = dead.iter().map(|row| row.delivery.payload().to_vec()).collect();
    payloads.sort();
    assert_eq!(payloads, [b"bad-0", b"bad-1", b"bad-2"]);
    for row in dead {
        assert_eq!(row.reason, Some(Reason::Unrepresentable));
        assert!(row.error.contains("not UTF-8"), "{}", row.error);
        let list = row.delivery.headers().get("idem-amqp-properties").unwrap();
        assert!(list.ends_with(&BAD_ID[2..]), "{list:?}");
    }
}

async fn taken_out(mode: Mode, tune: impl FnOnce(Tuned<idem::rabbitmq::Queue>) -> Tuned<idem::rabbitmq::Queue>) {
    crate::everywhere::run::<RabbitMq>(mode, async |scene| {
        publish(scene, 50).await;
        let worker = scene.start_from(scene.site.source().await, tune);
        ends(scene, 50, worker).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_run_once() {
    taken_out(Mode::Direct, |worker| worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_run_once_in_batches() {
    taken_out(Mode::Batch, |worker| worker.batch(50)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_run_once_from_the_inbox() {
    taken_out(Mode::Inbox, |worker| worker).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn is_a_dead_letter_and_its_neighbours_keep_their_order() {
    crate::everywhere::run::<RabbitMq>(Mode::Direct, async |scene| {
        // With one consumer at a time.
        assert!(scene.site.forget().await);
        Raw::connect(&scene.site.address).await.declare_single_active(&scene.site.name).await;
        publish(scene, 20).await;
        let worker = scene.start_from(scene.site.source().await, |worker| worker.order(DeliveryOrder::Queue));
        ends(scene, 20, worker).await;
        let ran: Vec<_> = scene.world.stage.runs().into_iter().map(|run| run.id).collect();
        let published: Vec<_> = (0..4).flat_map(|part| (0..20).map(move |n| format!("good-{part}-{n}"))).collect();
        assert_eq!(ran, published);
    })
    .await;
}
