//! The log of a whole worker that meets no fault. This test has a separate process, because the brokers' clients log on
//! their own threads.

use idem_faults::{Act, Broker, Kafka, Mode, Nats, RabbitMq, Scene, Sqs, orders};
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_starts_works_and_ends_without_a_warning_on_each_broker() {
    let (text, subscriber) = idem_conformance::captured();
    subscriber.init();
    works_and_ends::<RabbitMq>().await;
    works_and_ends::<Nats>().await;
    works_and_ends::<Kafka>().await;
    works_and_ends::<Sqs>().await;
    let text = text.to_string();
    // lapin logs an error for each connection that ends, as the guide says, and the number of a producer (GETPID) is one of
    // the test's own, which publishes to Kafka.
    let others = [" lapin::", "GETPID"];
    let is_bad = |line: &&str| ["ERROR", "WARN"].iter().any(|level| line.contains(level));
    let bad: Vec<_> = text.lines().filter(is_bad).filter(|line| !others.iter().any(|of| line.contains(of))).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    let starts = text.matches("the worker has started").count();
    assert!(text.is_empty() || starts == 8, "{starts} starts: {text}");
}

/// Twice, so that the second worker finds what the first one has made.
async fn works_and_ends<B: Broker>() {
    let Some(scene) = Scene::<B>::new(Mode::Direct).await else { return };
    for part in ["first", "second"] {
        let worker = scene.start_warm().await;
        scene.publish(&orders(part, 3, Act::Write)).await;
        scene.effects(if part == "first" { 3 } else { 6 }).await;
        scene.settled().await;
        worker.stop().await.unwrap();
    }
    scene.end().await;
}
