//! The JetStream of a domain other than the connected server's.

use std::net::TcpListener;

use crate::common::raw::publish_unreadable;
use crate::common::server::Server;
use crate::common::{LONG, SHORT, World, loss, next, subscribe_options};
use idem_core::{Acker, Settled, Source};
use idem_nats::{Nats, Stream};
use tokio::time::{Duration, sleep, timeout};

/// Starts a hub and a leaf node of it, each with its JetStream.
fn hub_and_leaf() -> Option<(Server, Server)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hub = Server::start(&format!(
        "server_name: hub\njetstream: {{ domain: hub }}\nleafnodes: {{ listen: \"127.0.0.1:{port}\" }}"
    ))?;
    let leaf = Server::start(&format!(
        "server_name: leaf\njetstream: {{ domain: leaf }}\nleafnodes: {{ remotes: [ {{ url: \"nats://127.0.0.1:{port}\" }} ] }}"
    ))?;
    Some((hub, leaf))
}

/// Returns the stream of the hub, through the leaf.
async fn by_the_leaf(leaf: &Server, stream: &str) -> Stream {
    let nats = Nats::options(leaf.url()).domain("hub").connect().await.unwrap();
    let found = async {
        loop {
            // The leaf may not be connected yet.
            match nats.stream(stream).await {
                Ok(found) => return found,
                Err(_) => sleep(Duration::from_millis(50)).await,
            }
        }
    };
    timeout(LONG, found).await.expect("the leaf has not found its hub")
}

#[tokio::test]
async fn the_stream_of_another_domain_is_consumed_and_settled_there() {
    let Some((hub, leaf)) = hub_and_leaf() else { return };
    let world = World::at(hub.url()).await;
    world.make(|_| {}).await;
    world.publish_each(["a", "b"]).await;
    let mut stream = by_the_leaf(&leaf, &world.stream).await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    let (delivery, acker) = next(&mut stream).await;
    assert_eq!(delivery.payload(), "a");
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    let (_, released) = next(&mut stream).await;
    released.release().await.unwrap();
    let (again, acker) = next(&mut stream).await;
    assert!(again.payload() == "b" && again.redelivered());
    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
    world.until(0, 0).await;
    world.delete_consumer().await;
    let said = loss(&mut stream).await.to_string();
    assert!(said.contains(&world.stream), "{said}");
}

/// Its ack subject is known from a message that could be read.
#[tokio::test]
async fn an_unreadable_message_of_another_domain_is_delivered_as_undeliverable_and_removed() {
    let Some((hub, leaf)) = hub_and_leaf() else { return };
    let world = World::at(hub.url()).await;
    world.make(|_| {}).await;
    let mut stream = by_the_leaf(&leaf, &world.stream).await.ack_wait(SHORT);
    world.publish("readable").await;
    stream.subscribe(subscribe_options(4)).await.unwrap();
    next(&mut stream).await.1.ack().await.unwrap();
    publish_unreadable(&world).await;
    let undeliverable = async {
        loop {
            match stream.next().await {
                Ok((delivery, acker)) if delivery.unrepresentable().is_some() => {
                    assert_eq!(acker.ack().await.unwrap(), Settled::Confirmed);
                    return;
                }
                Ok(other) => panic!("{:?}", other.0),
                Err(_) => while stream.subscribe(subscribe_options(4)).await.is_err() {},
            }
        }
    };
    timeout(LONG, undeliverable).await.expect("it was not found");
    world.until(0, 0).await;
    world.publish("goes on").await;
    assert_eq!(next(&mut stream).await.0.payload(), "goes on");
}

#[tokio::test]
async fn a_domain_that_does_not_exist_is_named() {
    let Some(server) = Server::start("jetstream: { domain: hub }") else { return };
    let nats = Nats::options(server.url()).domain("elsewhere").connect().await.unwrap();
    let error = nats.stream("ORDERS").await.unwrap_err().to_string();
    assert!(error.contains("$JS.elsewhere.API.STREAM.INFO.ORDERS") && error.contains(".domain(..)"), "{error}");
}
