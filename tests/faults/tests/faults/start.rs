//! A database that keeps a worker from starting. The refusals of the stores and the adapters are tested beside them.

use idem::{Error, Postgres};
use idem_conformance::texts;
use idem_faults::{World, variable};

const PASSWORD: &str = "secret";

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_database_went_away_before_it_started_says_so_and_starts_when_it_is_back() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let mut server = tokio::task::spawn_blocking(idem_services::Postgres::start).await.unwrap().unwrap();
    let world = World::at(server.url()).await;
    let store = world.store().await;
    let mut server = tokio::task::spawn_blocking(move || {
        server.stop().unwrap();
        server
    })
    .await
    .unwrap();

    let error = world.start(&store, world.broker.queue("orders"), |worker| worker).end().await.unwrap_err();
    let text = texts(&error);
    assert!(matches!(error, Error::Database { .. }) && text.contains("register the handlers"), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    let error = Postgres::connect(server.url()).await.unwrap_err();
    let text = texts(&error);
    assert!(text.contains("cannot connect to PostgreSQL at 127.0.0.1") && !text.contains(PASSWORD), "{text}");

    let server = tokio::task::spawn_blocking(move || {
        server.start_again().unwrap();
        server
    })
    .await
    .unwrap();
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&idem_faults::Order::new("order", idem_faults::Act::Write));
    world.journal.processed(1).await;
    worker.stop().await.unwrap();
    tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
}
