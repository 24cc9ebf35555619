//! JetStream as a sink on servers of the test's own: with permissions, with accounts, and to be stopped.

use std::time::{Duration, Instant};

use crate::common;
use crate::common::server::Server;
use crate::sink::opened;
use async_nats::jetstream::stream::{Config, StorageType};
use idem_conformance::sink::{message, publish, relay};
use idem_core::{Outgoing, Sink, SinkError, StagedMessage};
use idem_nats::Nats;
use tokio::time::timeout;
use uuid::Uuid;

/// The server does not answer a message to a subject that is forbidden; it fails anyway, and its neighbours do not.
#[tokio::test]
async fn a_forbidden_subject_is_refused_at_once() {
    let users = "jetstream: {}\nauthorization: { users: [ { user: admin, password: a }, \
                 { user: sink, password: s, permissions: { publish: { deny: \"orders.secret\" } } } ] }";
    let Some(server) = Server::start(users) else { return };
    let admin = async_nats::ConnectOptions::with_user_and_password("admin".to_owned(), "a".to_owned());
    let jetstream = async_nats::jetstream::new(admin.connect(server.url()).await.unwrap());
    let orders = Config { name: "ORDERS".to_owned(), subjects: vec!["orders.>".to_owned()], ..Config::default() };
    jetstream.create_stream(orders).await.unwrap();
    let nats = Nats::connect(format!("nats://sink:s@127.0.0.1:{}", server.port)).await.unwrap();
    let sink = opened(nats.jetstream("orders.")).await;
    let began = Instant::now();
    for _ in 0..2 {
        let (secret, paid) = (message("secret"), message("paid"));
        let (refused, passed) = tokio::join!(publish(&sink, &secret), publish(&sink, &paid));
        passed.unwrap();
        let error = refused.unwrap_err();
        assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains("orders.secret"), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    sink.close().await;
}

/// The server reports a full account with code 400, as it does a message that is too large for its stream.
#[tokio::test]
async fn a_full_account_is_a_failure_of_the_broker() {
    let accounts = "jetstream: {}\nno_auth_user: app\naccounts: { APP: { jetstream: { max_mem: 64K, max_file: 64K }, \
                    users: [ { user: app, password: p } ] } }";
    let Some(server) = Server::start(accounts) else { return };
    let world = common::World::at(server.url()).await;
    world.make(|_| {}).await;
    let sink = opened(world.nats().await.jetstream(format!("{}.", world.stream))).await;
    let large = || StagedMessage::new(Uuid::now_v7(), Outgoing::new("x", vec![b'x'; 10_000]));
    let filled = async {
        loop {
            if let Err(error) = publish(&sink, &large()).await {
                break error;
            }
        }
    };
    let error = timeout(common::LONG, filled).await.unwrap();
    assert!(error.to_string().contains("limits exceeded"), "{error}");
    assert!(matches!(error, SinkError::Broker(_)), "{error}");
    sink.close().await;
}

/// Nothing listens to a subject that a stream has, as while the stream has no leader: that is not the fault of the
/// message. Here the stream is in another account, whose API this one may use.
#[tokio::test]
async fn a_stream_that_does_not_answer_is_a_failure_of_the_broker() {
    let accounts = "accounts: {
        HUB: { jetstream: enabled, users: [ { user: hub, password: h } ], exports: [ { service: \"$JS.API.>\" } ] },
        APP: {
            users: [ { user: app, password: p } ],
            imports: [ { service: { account: HUB, subject: \"$JS.API.>\" }, to: \"$JS.hub.API.>\" } ]
        }
    }
    jetstream: {}";
    let Some(server) = Server::start(accounts) else { return };
    let hub = async_nats::ConnectOptions::with_user_and_password("hub".to_owned(), "h".to_owned());
    let jetstream = async_nats::jetstream::new(hub.connect(server.url()).await.unwrap());
    let orders = Config { name: "ORDERS".to_owned(), subjects: vec!["orders.>".to_owned()], ..Config::default() };
    jetstream.create_stream(orders).await.unwrap();
    let url = format!("nats://app:p@127.0.0.1:{}", server.port);
    let sink = opened(Nats::options(url).domain("hub").connect().await.unwrap().jetstream("")).await;
    let error = publish(&sink, &message("orders.paid")).await.unwrap_err();
    assert!(matches!(error, SinkError::Broker(_)) && error.to_string().contains("`ORDERS`"), "{error}");
    assert!(matches!(publish(&sink, &message("invoices.paid")).await, Err(SinkError::Message(_))));
    sink.close().await;
}

/// During an election, nothing listens to a stream's subjects, and the API does not answer. Here a subscriber stands in
/// for the API, on a server without JetStream.
#[tokio::test]
async fn an_api_that_does_not_answer_is_a_failure_of_the_broker() {
    let Some(server) = Server::start("") else { return };
    let client = async_nats::connect(server.url()).await.unwrap();
    let _silent = client.subscribe("$JS.API.>").await.unwrap();
    client.flush().await.unwrap();
    let sink = opened(Nats::connect(server.url()).await.unwrap().jetstream("")).await;
    let error = publish(&sink, &message("orders.paid")).await.unwrap_err();
    assert!(matches!(error, SinkError::Broker(_)), "{error}");
    sink.close().await;
}

/// A login that may not ask for the names of streams cannot tell an election from a subject that no stream has.
#[tokio::test]
async fn a_login_that_may_not_ask_is_told_of_an_unknown_subject() {
    let users = "jetstream: {}\nauthorization: { users: [ \
                 { user: sink, password: s, permissions: { publish: { deny: \"$JS.API.>\" } } } ] }";
    let Some(server) = Server::start(users) else { return };
    let nats = Nats::connect(format!("nats://sink:s@127.0.0.1:{}", server.port)).await.unwrap();
    let sink = opened(nats.jetstream("orders.")).await;
    let error = publish(&sink, &message("paid")).await.unwrap_err();
    assert!(matches!(error, SinkError::Message(_)) && error.to_string().contains("orders.paid"), "{error}");
    sink.close().await;
}

/// A server that is killed and comes back takes the messages again.
#[tokio::test]
async fn a_server_that_restarts_is_a_failure_of_the_broker_until_it_is_back() {
    let Some(mut server) = Server::start("jetstream: {}") else { return };
    let world = common::World::at(server.url()).await;
    world.make(|config| config.storage = StorageType::File).await;
    let sink = opened(world.nats().await.jetstream(format!("{}.", world.stream))).await;
    publish(&sink, &message("x")).await.unwrap();
    server.stop(false);
    assert!(matches!(publish(&sink, &message("x")).await, Err(SinkError::Broker(_))));
    server.again();
    // A server that has just started has no stream yet, and that costs no message an attempt.
    relay(&sink, &message("x")).await.unwrap();
    sink.close().await;
}

/// A login that becomes wrong is a failure of the broker, and neither error nor sink shows the password.
#[tokio::test]
async fn no_password_is_shown() {
    let Some(mut server) = Server::start("jetstream: {}\nauthorization: { user: u, password: s3ntinel }") else {
        return;
    };
    let nats = Nats::connect(format!("nats://u:s3ntinel@127.0.0.1:{}", server.port)).await.unwrap();
    let sink = nats.jetstream("");
    server.stop(false);
    for error in [sink.open().await.unwrap_err(), publish(&sink, &message("x")).await.unwrap_err()] {
        assert!(matches!(error, SinkError::Broker(_)), "{error}");
        let texts = idem_conformance::texts(&error);
        assert!(!texts.contains("s3ntinel") && texts.contains("127.0.0.1"), "{texts}");
    }
    assert!(!format!("{sink:?}").contains("s3ntinel"));
}
