//! The relay suite over PostgreSQL.

#[path = "worlds/postgres.rs"]
mod world;

idem_test::relay_suite!(world::PostgresWorld);

/// The order of a key holds although an earlier transaction of it commits long after later messages of other keys were
/// published, and it is found without waiting for the search of all that is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_late_is_published_before_later_ones_of_its_key() {
    use std::time::{Duration, Instant};

    use idem_core::store::Page;
    use idem_core::{Outgoing, Relay, StoreOutbox};
    use idem_test::MemorySink;
    use idem_test::conformance::store::{Setup, World};
    use sqlx::{Connection, PgConnection};

    let Some(world) = world::PostgresWorld::make().await else { return };
    let store = world.store(Setup::default()).await.unwrap();
    let outbox = store.outbox("billing");
    let sink = MemorySink::new();
    let relay = tokio::spawn(Relay::new("billing", store.clone(), sink.clone()).run_until(std::future::pending()));
    // In one lane, since all of them have one key or another of the same lane.
    let message = |text: &str| Outgoing::new("orders", text.to_owned()).key("k");
    let mut first = PgConnection::connect(&world.url).await.unwrap();
    let mut second = PgConnection::connect(&world.url).await.unwrap();
    outbox.stage(&mut second, [message("before")]).await.unwrap();
    sink.wait_for(|sink| sink.published().len() == 1).await;
    let mut late = first.begin().await.unwrap();
    outbox.stage(&mut late, [message("late")]).await.unwrap();
    // The floors advance beyond its id.
    let began = Instant::now();
    let mut others = 0;
    while began.elapsed() < Duration::from_secs(7) {
        outbox.stage(&mut second, [message(&format!("other {others}"))]).await.unwrap();
        others += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let began = Instant::now();
    late.commit().await.unwrap();
    outbox.stage(&mut second, [message("later")]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), sink.wait_for(|sink| sink.published().len() == others + 3))
        .await
        .unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let texts: Vec<String> =
        sink.published().iter().map(|message| String::from_utf8_lossy(message.payload()).into_owned()).collect();
    let place = |text: &str| texts.iter().position(|other| other == text).unwrap();
    // One that was staged just before the commit may not have been read by then.
    assert!(place("late") < place("later") && place("late") + 5 > others, "{texts:?}");
    assert_eq!(texts.len(), others + 3, "each once");
    assert!(StoreOutbox::new(&store, "billing").list(Page::default()).await.unwrap().is_empty());
    relay.abort();
}
