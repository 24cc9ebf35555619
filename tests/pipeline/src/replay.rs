//! Dead letters that are listed and replayed.

use idem_core::Key;
use idem_core::operator::{Filter, Operator, Page};
use idem_core::store::Replayed;
use tokio::sync::watch;

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;
use idem_test::tapped_store::TappedStore;

use super::faulty::{Do, Faulty};
use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::settings::Settings;

/// The cause is fixed, and the message runs once.
pub async fn a_replay_runs_it_once<W: World>(world: W) {
    let line = Line::new(world).await;
    let order = Order::new("a", &[Act::Permanent, Act::Ok]);
    line.publish(order.clone());
    line.run(1).await;
    let id = line.one_dead().await.id;
    assert_eq!(line.operator().replay(id).await.unwrap(), Replayed::Due);
    line.publish(order);
    assert_eq!(sorted(line.run(3).await.split_off(1)), ["duplicate", "processed"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 2));
    assert!(line.dead().await.is_empty() && line.scheduled().await.is_empty());
}

/// An operator may repeat the command.
pub async fn a_replay_twice_has_one_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Permanent, Act::Ok]));
    line.run(1).await;
    let id = line.one_dead().await.id;
    let inbox = line.operator();
    let (one, two) = tokio::join!(inbox.replay(id), inbox.replay(id));
    let mut answers = [one.unwrap(), two.unwrap()].map(|answer| answer == Replayed::Due);
    answers.sort_unstable();
    assert_eq!(answers, [false, true]);
    assert_eq!(line.run(2).await[1], "processed");
    assert_eq!(line.operator().replay(id).await.unwrap(), Replayed::NotFound);
    line.publish(Order::ok("after"));
    line.run(3).await;
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 2));
}

/// The key was wrong: both messages have their effect in the end.
pub async fn a_replay_of_a_conflict_under_a_new_key_has_its_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    line.run(1).await;
    line.publish(Order::new("a", &[Act::Ok, Act::Ok]));
    assert_eq!(line.run(2).await[1], "dead: conflict");
    let id = line.one_dead().await.id;
    let inbox = line.operator();
    assert_eq!(inbox.replay(id).await.unwrap(), Replayed::NeedsKey);
    assert_eq!(inbox.replay_as(id, &Key::of("a").unwrap()).await.unwrap(), Replayed::KeyTaken);
    assert_eq!(inbox.replay_as(id, &Key::of("a, the second").unwrap()).await.unwrap(), Replayed::Due);
    assert_eq!(line.run(3).await[2], "processed");
    assert_eq!(line.effects("a").await, 2);
    assert!(line.dead().await.is_empty());
}

/// Its effect may already exist, so the operator must confirm.
pub async fn a_replay_of_a_committed_message_needs_force<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Commit, Act::Ok]));
    line.run(1).await;
    let id = line.one_dead().await.id;
    assert_eq!(line.operator().replay(id).await.unwrap(), Replayed::NeedsForce);
    assert_eq!(line.operator().replay_by_force(id).await.unwrap(), Replayed::Due);
    assert_eq!(line.run(2).await[1], "processed");
    let stands = i64::from(!W::FEATURES.refuses_commit);
    assert_eq!(line.effects("a").await, 1 + stands, "as the operator was told");
}

/// A row without a key goes through decode and key again: it gets a claim and runs, or it is a copy of a processed
/// message.
pub async fn a_replay_of_an_unknown_type_finds_its_handler<W: World>(world: W) {
    let line = Line::new(world).await;
    let refund = |id: &str| Publication::from(Order::ok(id)).event_type("Refund");
    line.publish_raw(refund("a"));
    assert_eq!(line.run(1).await, ["dead: unknown type"]);
    let id = line.one_dead().await.id;
    assert_eq!(line.operator().replay(id).await.unwrap(), Replayed::Due);
    let both = Settings { both: true, ..Settings::default() };
    line.runs_to(both.clone(), &["scheduled 0", "processed"]).await;
    assert_eq!(line.effects("refund a").await, 1);

    line.publish_raw(refund("b"));
    line.runs_to(Settings::default(), &["dead: unknown type"]).await;
    line.publish_raw(refund("b"));
    line.runs_to(both.clone(), &["processed"]).await;
    let id = line.one_dead().await.id;
    assert_eq!(line.operator().replay(id).await.unwrap(), Replayed::Due);
    line.runs_to(both, &["duplicate"]).await;
    assert_eq!(line.effects("refund b").await, 1);
    assert!(line.dead().await.is_empty() && line.scheduled().await.is_empty());
}

/// Rows are found and then read. One that goes between the two takes no other one out of the list.
pub async fn a_list_whose_rows_have_all_gone_looks_again<W: World>(world: W) {
    let line = Line::new(world).await;
    for id in ["a", "b"] {
        line.publish(Order::new(id, &[Act::Permanent]));
    }
    line.run(2).await;
    let [newest, other] = &line.dead().await[..] else { panic!("there are not two dead letters") };
    let (reads, opened) = (watch::Sender::new(0), watch::Sender::new(false));
    let (counted, gate) = (reads.clone(), opened.subscribe());
    let tap = Faulty::new(move |method, _| match method {
        "rows" => {
            counted.send_modify(|reads| *reads += 1);
            Do::Wait(gate.clone())
        }
        _ => Do::Work,
    });
    let tapped = Operator::new(&TappedStore::new(line.store.clone(), tap));
    let list = tokio::spawn(async move { tapped.list(&Filter::new(), Page::new(1)).await });
    soon(reads.subscribe().wait_for(|reads| *reads == 1)).await.unwrap();
    assert!(line.operator().discard(newest.id).await.unwrap());
    opened.send_replace(true);
    let found = soon(list).await.unwrap().unwrap();
    assert_eq!((found.rows.len(), found.rows.first().map(|row| row.id)), (1, Some(other.id)));
}
