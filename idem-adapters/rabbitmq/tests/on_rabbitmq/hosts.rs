//! Several hosts of one cluster.

use std::time::Duration;

use crate::common::relay::Relay;
use crate::common::{World, loss, next, subscribe_options};
use idem_conformance::authority;
use idem_conformance::sink::{message, publish};
use idem_conformance::texts;
use idem_core::{Acker, Error, Sink, Source};
use idem_rabbitmq::RabbitMq;
use lapin::ExchangeKind;
use lapin::options::ExchangeDeleteOptions;
use tokio::net::TcpListener;
use tokio::time::timeout;

const SENTINEL: &str = "s3ntinel";

/// Returns an address where nothing listens.
async fn dead() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("127.0.0.1:{}", listener.local_addr().unwrap().port())
}

fn host(relay: &Relay, url: &str) -> String {
    authority(&relay.url(url)).to_owned()
}

#[tokio::test]
async fn a_host_that_is_dead_is_skipped() {
    let Some(world) = World::new().await else { return };
    let first = world.url.replacen(authority(&world.url), &dead().await, 1);
    let hosts = [dead().await, authority(&world.url).to_owned()];
    let rabbit = RabbitMq::options(first).hosts(hosts).connect().await.unwrap();
    let mut queue = rabbit.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    world.publish("x").await;
    let (delivery, acker) = next(&mut queue).await;
    assert_eq!(delivery.payload(), "x");
    acker.ack().await.unwrap();
    // The connection that reads raw bytes also tries each host.
    world.publish_unreadable(&["bad"]).await;
    loss(&mut queue).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    assert!(next(&mut queue).await.0.unrepresentable().is_some());
}

#[tokio::test]
async fn when_all_are_dead_the_error_names_each_and_no_password() {
    let hosts = [dead().await, dead().await, dead().await];
    let options = RabbitMq::options(format!("amqp://u:{SENTINEL}@{}/shop", hosts[0]));
    let error = options.hosts(&hosts[1..]).connect().await.unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(hosts.iter().all(|host| said.contains(host.as_str())), "{said}");
    assert!(said.contains("user `u`") && said.contains("check that the server runs"), "{said}");
    assert!(!said.contains(SENTINEL), "{said}");
}

#[tokio::test]
async fn a_host_that_cannot_be_read_is_refused() {
    let options = RabbitMq::options("amqp://h").hosts([format!("amqp://u:{SENTINEL}@h")]);
    let error = options.connect().await.unwrap_err();
    assert!(matches!(error, Error::Config(_)) && !texts(&error).contains(SENTINEL), "{error:?}");
}

#[tokio::test]
async fn a_source_whose_host_dies_goes_on_at_the_next_and_comes_back() {
    let Some(world) = World::new().await else { return };
    let (one, two) = (Relay::start(&world.url).await, Relay::start(&world.url).await);
    let options = RabbitMq::options(one.url(&world.url)).hosts([host(&two, &world.url)]);
    let mut queue = options.connect().await.unwrap().queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    for (number, dies) in [&one, &two].into_iter().enumerate() {
        dies.refuse(true);
        loss(&mut queue).await;
        queue.subscribe(subscribe_options(1)).await.unwrap();
        world.publish(number.to_string()).await;
        loop {
            let (delivery, acker) = next(&mut queue).await;
            acker.ack().await.unwrap();
            if delivery.payload() == number.to_string().as_bytes() {
                break;
            }
            // RabbitMQ does not confirm an ack: that of the message before may have been lost with its host.
            assert!(delivery.redelivered(), "{delivery:?}");
        }
        dies.refuse(false);
    }
}

/// A node that accepts connections but cannot serve the queue must not be retried forever.
#[tokio::test]
async fn after_a_subscription_ends_the_next_connection_begins_with_the_next_host() {
    let Some(world) = World::new().await else { return };
    let (one, two) = (Relay::start(&world.url).await, Relay::start(&world.url).await);
    let options = RabbitMq::options(one.url(&world.url)).hosts([host(&two, &world.url)]);
    let mut queue = options.connect().await.unwrap().queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    // The server closes the channel, but still accepts connections through this relay.
    one.ack_nonsense();
    loss(&mut queue).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    one.refuse(true);
    world.publish("by the other one").await;
    assert_eq!(next(&mut queue).await.0.payload(), "by the other one");
}

/// The second host takes connections and says nothing. A relay waits for less time than it takes to find that.
#[tokio::test]
async fn a_sink_goes_on_beside_a_host_that_is_silent() {
    const RELAY: Duration = Duration::from_secs(2);
    const CONNECT: Duration = Duration::from_secs(10);
    let Some(world) = World::new().await else { return };
    let one = Relay::start(&world.url).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hosts = [silent.local_addr().unwrap().to_string()];
    let sink = RabbitMq::options(one.url(&world.url)).hosts(hosts).connect().await.unwrap().exchange(&world.queue);
    world.exchange(&world.queue, ExchangeKind::Fanout, "").await;
    sink.open().await.unwrap();
    // Without the exchange, the server closes the channel, and its host is as good as before.
    let message = message("orders.paid");
    world.channel.exchange_delete(world.queue.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
    publish(&sink, &message).await.unwrap_err();
    world.exchange(&world.queue, ExchangeKind::Fanout, "").await;
    timeout(RELAY, sink.publish(&message)).await.unwrap().unwrap();
    // When its host is lost, the silent one is next, and the first one again after that.
    one.cut();
    let published = async { while !matches!(timeout(RELAY, sink.publish(&message)).await, Ok(Ok(()))) {} };
    timeout(CONNECT * 2, published).await.unwrap();
    sink.close().await;
}
