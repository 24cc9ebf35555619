//! Credentials from a callback, called for each connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::common;
use crate::common::relay::Relay;
use crate::common::{World, loss, next, subscribe_options};
use idem_conformance::authority;
use idem_conformance::texts;
use idem_core::{Acker, Error, Settled, Source};
use idem_rabbitmq::{Credentials, RabbitMq};

const SENTINEL: &str = "s3ntinel";

/// A callback that returns the test's login until it has expired.
#[derive(Clone, Default)]
struct Tokens {
    asked: Arc<AtomicU32>,
    expired: Arc<AtomicBool>,
    valid_for: Option<Duration>,
}

impl Tokens {
    async fn rabbit(&self, url: &str) -> Result<RabbitMq, Error> {
        let login = url.split_once("://").unwrap().1.rsplit_once('@').unwrap().0;
        let (user, password) = login.split_once(':').unwrap();
        let (user, password, tokens) = (user.to_owned(), password.to_owned(), self.clone());
        let options = RabbitMq::options(url.replacen(&format!("{login}@"), "", 1)).credentials(move || {
            tokens.asked.fetch_add(1, SeqCst);
            let password = if tokens.expired.load(SeqCst) { SENTINEL.to_owned() } else { password.clone() };
            let credentials = Credentials::new(user.clone(), password);
            let valid_for = tokens.valid_for;
            async move { Ok(valid_for.map_or(credentials.clone(), |time| credentials.valid_for(time))) }
        });
        options.connect().await
    }
}

#[tokio::test]
async fn credentials_are_asked_for_at_each_connection() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    let tokens = Tokens::default();
    let rabbit = tokens.rabbit(&relay.url(&world.url)).await.unwrap();
    let mut queue = rabbit.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(4)).await.unwrap();
    relay.cut();
    loss(&mut queue).await;

    tokens.expired.store(true, SeqCst);
    let asked = tokens.asked.load(SeqCst);
    let refused = queue.subscribe(subscribe_options(4)).await.unwrap_err();
    let said = texts(refused.as_ref());
    assert!(tokens.asked.load(SeqCst) > asked, "it was not asked again");
    assert!(said.contains(".credentials(..)") && said.contains(authority(&relay.url(&world.url))), "{said}");
    assert!(!said.contains(SENTINEL), "{said}");

    tokens.expired.store(false, SeqCst);
    queue.subscribe(subscribe_options(4)).await.unwrap();
    world.publish("after").await;
    assert_eq!(next(&mut queue).await.0.payload(), "after");
}

#[tokio::test]
async fn a_connection_gets_the_next_credentials_before_its_own_run_out() {
    let Some(world) = World::new().await else { return };
    let relay = Relay::start(&world.url).await;
    let tokens = Tokens { valid_for: Some(Duration::from_secs(2)), ..Tokens::default() };
    let rabbit = tokens.rabbit(&relay.url(&world.url)).await.unwrap();
    let mut queue = rabbit.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(4)).await.unwrap();
    world.publish("before").await;
    let (_, unsettled) = next(&mut queue).await;
    tokio::time::timeout(common::LONG, relay.renewed(2)).await.expect("no connection was given another secret");
    // The connection is still open: the unsettled delivery can be settled, and more are delivered.
    assert_eq!(unsettled.ack().await.unwrap(), Settled::Sent);
    world.publish("after").await;
    let (delivery, acker) = next(&mut queue).await;
    assert_eq!((&delivery.payload()[..], delivery.redelivered()), (&b"after"[..], false));
    acker.ack().await.unwrap();
}

/// A message that lapin cannot parse is removed on another kind of connection, which uses the same credentials.
#[tokio::test]
async fn the_connection_that_reads_bytes_asks_as_well() {
    let Some(world) = World::new().await else { return };
    let mut queue = Tokens::default().rabbit(&world.url).await.unwrap().queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    world.publish_unreadable(&["bad"]).await;
    loss(&mut queue).await;
    queue.subscribe(subscribe_options(1)).await.unwrap();
    let (delivery, acker) = next(&mut queue).await;
    assert!(delivery.unrepresentable().is_some(), "{delivery:?}");
    acker.ack().await.unwrap();
}

#[tokio::test]
async fn a_callback_that_fails_is_an_error_of_the_connection() {
    let options =
        RabbitMq::options("amqp://rabbit.invalid/shop").credentials(|| async { Err("the vault is sealed".into()) });
    let error = options.connect().await.unwrap_err();
    assert!(matches!(error, Error::Broker { .. }), "{error:?}");
    let said = texts(&error);
    assert!(said.contains("rabbit.invalid") && said.contains(".credentials(..)"), "{said}");
    assert!(said.contains("the vault is sealed"), "{said}");
}
