//! Tests the harness: it detects a faulty handler and a faulty trial.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../elsewhere/mod.rs"]
mod elsewhere;
mod everywhere;
mod handlers;
mod natural;
mod natural_handlers;
#[path = "../worlds/sqlite.rs"]
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use handlers::{Bad, Event, Good, Paid, Renamed, Routed, Shop, Typed, Words};
use idem_conformance::store::{Setup, World};
use idem_core::{Handler, Outcome, Reason, Sqlite, State};
use idem_test::harness::{Bench, FreshFile};
use idem_test::{Crash, Publication, Trial};
use sqlx::SqliteConnection;
use world::SqliteWorld;

/// The world of the tests in `elsewhere`.
type Tested = SqliteWorld;

const ACCOUNT: &str = "CREATE TABLE account (balance INTEGER NOT NULL); INSERT INTO account VALUES (0)";
const BALANCE: &str = "SELECT balance FROM account";

async fn trial<H>(shop: Shop) -> Trial<Sqlite>
where
    H: Handler<Message = Paid, Params = State<Shop>, Connection = SqliteConnection>,
{
    bench(shop).handler::<H>().await.unwrap()
}

fn bench(shop: Shop) -> Bench<FreshFile, Shop> {
    Trial::sqlite().tables(ACCOUNT).state(shop)
}

fn paid(id: u32) -> Paid {
    Paid { id, amount: 25 }
}

#[tokio::test]
async fn a_good_handler_has_one_effect_in_every_way() {
    let trial = trial::<Good>(Shop::default()).await;
    trial.has_one_effect(paid, async || trial.number(BALANCE).await).await.unwrap();
}

#[tokio::test]
async fn an_effect_outside_of_the_transaction_is_found_out() {
    let shop = Shop::default();
    let trial = trial::<Bad>(shop.clone()).await;
    let found = trial.has_one_effect(paid, async || Ok(shop.outside.load(SeqCst))).await.unwrap_err().to_string();
    assert!(found.contains("crash Some(InHandler)"), "{found}");
}

#[tokio::test]
async fn a_handler_without_an_effect_is_found_out() {
    let trial = trial::<Good>(Shop::default()).await;
    assert!(trial.has_one_effect(paid, async || Ok(7)).await.is_err());
}

#[tokio::test]
async fn a_renamed_handler_knows_its_messages_in_a_trial_too() {
    let world = Arc::new(SqliteWorld::make().await.unwrap());
    world.run(ACCOUNT).await;
    let in_one_file = || {
        let world = world.clone();
        let connect = move || {
            let world = world.clone();
            async move { world.store(Setup::default()).await }
        };
        Trial::new(connect).state(Shop::default())
    };
    let trial = in_one_file().handler::<Good>().await.unwrap();
    trial.deliver_json(&paid(1)).unwrap().once().await.unwrap();
    let renamed = in_one_file().handler::<Renamed>().await.unwrap();
    assert_eq!(renamed.deliver_json(&paid(1)).unwrap().once().await.unwrap(), [Outcome::Duplicate]);
    assert_eq!(world.number(BALANCE).await, 25);
}

#[tokio::test]
async fn outcomes_tell_what_became_of_each_delivery() {
    let trial = trial::<Good>(Shop::default()).await;
    let outcomes = trial.deliver_json(&paid(1)).unwrap().times(3).await.unwrap();
    assert_eq!(outcomes, [Outcome::Processed, Outcome::Duplicate, Outcome::Duplicate]);
    let dead = trial.deliver_json(&Paid { id: 2, amount: -1 }).unwrap().once().await.unwrap();
    assert_eq!(dead, [Outcome::dead(Reason::Permanent)]);
    assert_eq!((trial.outcomes().len(), trial.dead_letters().await.unwrap().len()), (4, 1));
}

#[tokio::test]
async fn a_handler_of_cloud_events_is_given_them() {
    let trial = trial::<Event>(Shop::default()).await;
    let event = serde_json::json!({
        "specversion": "1.0", "id": "1", "source": "/shop", "type": "paid", "data": paid(1),
    });
    let event = Publication::json(&event).unwrap().content_type("application/cloudevents+json");
    let outcomes = trial.deliver(event).times(2).await.unwrap();
    assert_eq!(outcomes, [Outcome::Processed, Outcome::Duplicate]);
    assert_eq!(trial.number(BALANCE).await.unwrap(), paid(1).amount);
}

#[tokio::test]
async fn a_point_that_is_never_reached_is_said() {
    let trial = trial::<Good>(Shop::default()).await;
    let never = trial.deliver("no JSON").crash(Crash::InHandler).once().await.unwrap_err().to_string();
    assert!(never.contains("InHandler"), "{never}");
}

#[tokio::test]
async fn a_crash_happens_at_its_point() {
    for point in Crash::ALL.iter().copied() {
        let trial = trial::<Good>(Shop::default()).await;
        let outcomes = trial.deliver_json(&paid(1)).unwrap().crash(point).once().await.unwrap();
        // Before the commit, the message is redelivered, stored and run. After the commit, the claim is found. After
        // the ack, nothing is left to deliver and no outcome to report.
        let seen = outcomes.iter().map(Outcome::as_str).collect::<Vec<_>>();
        let expected = match point {
            Crash::AfterCommit => &["duplicate"][..],
            Crash::AfterAck => &[],
            _ => &["scheduled", "processed"],
        };
        assert_eq!(seen, expected, "{point:?}");
        assert_eq!(trial.number(BALANCE).await.unwrap(), 25, "{point:?}");
    }
}

#[tokio::test]
async fn a_handler_of_a_subject_pattern_is_tried() {
    let trial = bench(Shop::default()).route_by_subject().handler::<Routed>().await.unwrap();
    let sent = || trial.deliver_json(&paid(1)).unwrap();
    let taken = sent().subject("orders.42.paid").times(2).await.unwrap();
    assert_eq!(taken, [Outcome::Processed, Outcome::Duplicate]);
    assert_eq!(sent().subject("orders.42.sent").once().await.unwrap(), [Outcome::dead(Reason::UnknownType)]);
}

#[tokio::test]
async fn a_handler_of_a_type_in_a_header_is_tried() {
    let trial = bench(Shop::default()).event_type("kind").handler::<Routed>().await.unwrap();
    let sent = || trial.deliver_json(&paid(1)).unwrap();
    assert_eq!(sent().header("kind", "orders.*.paid").once().await.unwrap(), [Outcome::Processed]);
    assert_eq!(sent().event_type("orders.*.paid").once().await.unwrap(), [Outcome::dead(Reason::UnknownType)]);
}

#[tokio::test]
async fn a_handler_of_another_codec_is_tried() {
    let bench = bench(Shop::default()).codec(Words::default());
    let trial = bench.handler::<Good>().await.unwrap();
    let outcomes = trial.deliver("7 25").processes(2).crash(Crash::AfterCommit).times(2).await.unwrap();
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Duplicate), "{outcomes:?}");
    assert_eq!(trial.number(BALANCE).await.unwrap(), 25);
    assert_eq!(trial.deliver("{}").once().await.unwrap(), [Outcome::dead(Reason::Undecodable)]);
}

#[tokio::test]
async fn a_message_has_the_facts_that_a_test_gives_it() {
    let trial = trial::<Typed>(Shop::default()).await;
    let sent = || trial.deliver_json(&paid(1)).unwrap();
    let given = sent().event_type("paid").header("event-id", "e-1").times(2).await.unwrap();
    assert_eq!(given, [Outcome::Processed, Outcome::Duplicate]);

    let balance = async || trial.number(BALANCE).await;
    let told = trial.has_one_effect(paid, balance).await.unwrap_err().to_string();
    assert!(told.contains("unknown type") && told.contains(".event_type(..)"), "{told}");
    let missing = sent().event_type("paid").once().await.unwrap();
    assert_eq!(missing, [Outcome::dead(Reason::NoKey)]);

    let whole = |number: u32| {
        Publication::json(&paid(number)).unwrap().event_type("paid").header("event-id", format!("each-{number}"))
    };
    trial.has_one_effect(whole, balance).await.unwrap();
}
