//! Scratch.
use std::time::{Duration, Instant};

use idem_brokers::Broker;
use idem_faults::{Act, Order, World, fresh, orders, until};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[tokio::test(flavor = "multi_thread")]
async fn longer() {
    if std::env::var_os("LONGER").is_none() {
        return;
    }
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_test_writer().try_init();
    let mut server = tokio::task::spawn_blocking(|| idem_services::Kafka::start().unwrap()).await.unwrap();
    let address = server.url().to_owned();
    let world = World::new().await.unwrap();
    let store = world.options().connections(96).connect().await.unwrap();
    let name = fresh("longer");
    let broker = idem_brokers::Kafka::connect(&address, &name).await.unwrap();
    broker.create().await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..number("WORKERS", 1) {
        let mut options = idem::Kafka::options(&address);
        if let Ok(session) = std::env::var("SESSION") {
            options = options.property("session.timeout.ms", session).property("heartbeat.interval.ms", "500");
        }
        if let Ok(poll) = std::env::var("POLL") {
            options = options.property("max.poll.interval.ms", poll);
        }
        let source = options.connect().await.unwrap().topic(&name).await.unwrap().group(&name).window(16);
        workers.push(world.start(&store, source, |worker| worker.inbox_in_flight(16)));
    }
    let mut expected = 0;
    for round in 0..number("ROUNDS", 1) {
        let before = orders(&format!("before-{round}"), 400, Act::Take(20));
        let payloads: Vec<_> = before.iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
        broker.publish(&payloads).await.unwrap();
        let asked = "SELECT count(*) FROM {schema}.effects";
        until("effects", || async { world.number(asked).await >= expected + 100 }).await;
        println!("=== DOWN");
        let seconds = number("SECONDS", 39);
        let kill = std::env::var_os("KILL").is_some();
        server = tokio::task::spawn_blocking(move || {
            if kill { server.kill().unwrap() } else { server.stop().unwrap() }
            println!("=== IS DOWN");
            std::thread::sleep(Duration::from_secs(seconds));
            println!("=== STARTING");
            server.start_again().unwrap();
            server
        })
        .await
        .unwrap();
        println!("=== UP");
        let back = Instant::now();
        let after = Order::new(format!("after-{round}"), Act::Write);
        let mut published = false;
        while !published {
            let again = async {
                idem_brokers::Kafka::connect(&address, &name).await?.publish(&[serde_json::to_vec(&after).unwrap()]).await
            };
            published = matches!(tokio::time::timeout(Duration::from_secs(5), again).await, Ok(Ok(())));
        }
        println!("=== PUBLISHED after {:?}", back.elapsed());
        let now = world.number(asked).await;
        let mut moved = None;
        while world.number(asked).await < expected + 401 {
            if moved.is_none() && world.number(asked).await > now {
                moved = Some(back.elapsed());
            }
            assert!(back.elapsed() < Duration::from_secs(400), "never");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        println!("=== RESULT round {round}: moved after {moved:?}, all after {:?}", back.elapsed());
        expected += 401;
    }
    for worker in workers {
        worker.stop().await.unwrap();
    }
}
