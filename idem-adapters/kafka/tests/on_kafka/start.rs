//! Configurations that are refused at startup, and the error texts.

use std::time::Duration;

use crate::common::{LONG, World, options, subscribe_options};
use idem_conformance::texts;
use idem_core::{DeliveryOrder, Error, Source};
use idem_kafka::Kafka;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

const SENTINEL: &str = "s3ntinel";

async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn a_broker_that_is_away_is_named_without_the_password() {
    let address = nobody().await;
    let connect = Kafka::options(&address).sasl_plain("someone", SENTINEL).connect();
    let error = tokio::time::timeout(Duration::from_secs(5), connect).await.expect("it waited for long").unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(said.contains(&address) && said.contains("check that the server runs"), "{said}");
    assert!(said.contains("Connection refused") && !said.contains(SENTINEL), "{said}");
}

#[tokio::test]
async fn a_host_that_does_not_exist_is_named() {
    let error = Kafka::connect("kafka.invalid:9092").await.unwrap_err();
    let said = texts(&error);
    assert!(said.contains("kafka.invalid:9092") && said.contains("not known here"), "{said}");
}

#[tokio::test]
async fn the_connection_to_a_silent_server_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async move {
        let mut clients = Vec::new();
        while let Ok(Ok((client, _))) = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await {
            clients.push(client);
        }
        for mut client in clients {
            // Ends when the client has closed the connection.
            let _ = client.read_to_end(&mut Vec::new()).await;
        }
    });
    let error = tokio::time::timeout(LONG, Kafka::connect(&address)).await.expect("it waits for ever").unwrap_err();
    assert!(texts(&error).contains("check that the server runs"), "{error:?}");
    tokio::time::timeout(LONG, server).await.expect("the connection was left open").unwrap();
}

#[tokio::test]
async fn one_broker_of_several_is_enough() {
    let Some(world) = World::new().await else { return };
    let brokers = format!("{},{}", nobody().await, world.brokers);
    world.consume(&options(&brokers).connect().await.unwrap()).await;
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_refused_and_not_made() {
    let Some(world) = World::empty().await else { return };
    let kafka = world.kafka().await;
    for _ in 0..2 {
        let error = kafka.topic(&world.topic).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
        let error = error.to_string();
        assert!(error.contains("does not exist") && error.contains("--create"), "{error}");
        assert!(error.contains(&world.topic) && error.contains(&world.brokers), "{error}");
    }
}

#[tokio::test]
async fn a_name_that_no_topic_can_have_is_refused() {
    let Some(world) = World::empty().await else { return };
    let kafka = world.kafka().await;
    for name in ["", "^orders.*", "a b", "a\0", &"t".repeat(250)] {
        let error = kafka.topic(name).await.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
    }
}

#[tokio::test]
async fn invalid_options_are_refused_before_the_group_is_joined() {
    let Some(world) = World::new().await else { return };
    let queue = subscribe_options(1).with_order(DeliveryOrder::Queue);
    let cases = [
        (world.topic().await, queue, "DeliveryOrder::Partition"),
        (world.topic().await.window(0), subscribe_options(1), ".window("),
        (world.topic().await.group(""), subscribe_options(1), "must not be empty"),
    ];
    for (mut topic, options, remedy) in cases {
        let error = topic.subscribe(options).await.unwrap_err().to_string();
        assert!(error.contains(remedy), "{error}");
    }
}

#[tokio::test]
async fn windows_that_are_too_small_for_what_the_worker_wants_in_flight_are_warned_about() {
    let Some(world) = World::with(2).await else { return };
    let order = subscribe_options(8).with_order(DeliveryOrder::Partition);
    // Six are processed at once, and two would be at hand.
    let mut ahead = subscribe_options(8);
    ahead.least_unsettled = 6;
    for (window, options, warns) in
        [(3, subscribe_options(8), true), (4, subscribe_options(8), false), (3, order, false), (3, ahead, false)]
    {
        let (text, subscriber) = idem_conformance::captured();
        let guard = tracing::subscriber::set_default(subscriber);
        let mut topic = world.topic().await.window(window);
        topic.subscribe(options).await.unwrap();
        drop(guard);
        let text = text.to_string();
        let line = text.lines().find(|line| line.contains("WARN") && line.contains(".window(4)"));
        assert_eq!(line.is_some(), warns, "{text}");
        let said = ["wants 8 deliveries", "2 partitions with a window of 3 give it at most 6"];
        assert!(line.is_none_or(|line| said.iter().all(|said| line.contains(said))), "{text}");
        topic.close().await;
    }
    // A batch of a hundred in each of 16 tasks, with the default window.
    let (text, subscriber) = idem_conformance::captured();
    let guard = tracing::subscriber::set_default(subscriber);
    let mut topic = world.topic().await;
    topic.subscribe(subscribe_options(3200)).await.unwrap();
    drop(guard);
    let text = text.to_string();
    assert!(!text.lines().any(|line| line.contains("WARN") && line.contains(".window(")), "{text}");
    assert!(text.lines().any(|line| line.contains("INFO") && line.contains(".window(1600)")), "{text}");
    topic.close().await;
}

#[tokio::test]
async fn a_login_that_is_right_consumes() {
    let Some(world) = World::new().await else { return };
    let Some(address) = world.login("PLAIN").await else { return };
    world.consume(&options(&address).sasl_plain("idem", "idem").connect().await.unwrap()).await;
}

#[tokio::test]
async fn a_wrong_password_is_refused_at_once_and_not_shown() {
    let Some(world) = World::empty().await else { return };
    let Some(address) = world.login("PLAIN").await else { return };
    let connect = Kafka::options(&address).sasl_plain("idem", SENTINEL).connect();
    let error = tokio::time::timeout(Duration::from_secs(5), connect).await.expect("it waited for long").unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(said.contains("check user, password") && said.contains(&address) && !said.contains(SENTINEL), "{said}");
}

#[tokio::test]
async fn a_listener_of_other_security_is_refused_with_a_hint() {
    let Some(world) = World::empty().await else { return };
    let Some(address) = world.login("PLAIN").await else { return };
    for (address, options) in [
        (&address, Kafka::options(&address)),
        (&world.brokers, Kafka::options(&world.brokers).sasl_plain("idem", SENTINEL)),
    ] {
        let error = tokio::time::timeout(LONG, options.connect()).await.expect("it waits for ever").unwrap_err();
        let said = texts(&error);
        assert!(said.contains("SASL") && said.contains(address.as_str()) && !said.contains(SENTINEL), "{said}");
    }
}

#[tokio::test]
async fn a_source_shows_no_password() {
    let Some(world) = World::new().await else { return };
    let Some(address) = world.login("PLAIN").await else { return };
    let kafka = options(&address).sasl_plain("idem", "idem").property("client.rack", SENTINEL);
    let topic = kafka.connect().await.unwrap().topic(&world.topic).await.unwrap();
    let shown = format!("{topic:?}");
    assert!(shown.contains(&world.topic) && !shown.contains(SENTINEL), "{shown}");
}
