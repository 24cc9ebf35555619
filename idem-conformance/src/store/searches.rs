//! The operator's searches: by id, by key, for many rows, and for a consumer that nobody has.

use std::ops::ControlFlow;

use idem_core::operator::{Bulk, Done, Filter, Operator};
use idem_core::store::Replay;
use idem_core::{Error, Key, Reason};
use uuid::Uuid;

use super::stage::Stage;
use super::world::World;

/// By the text that a log or a list shows, whatever type the key was made of.
pub async fn a_row_is_found_by_the_text_of_its_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let uuid = Uuid::new_v4();
    let keys = [
        (Key::of(&uuid).unwrap(), uuid.to_string()),
        (Key::of("o'7").unwrap(), "o'7".to_owned()),
        (Key::of(&[0xff_u8, 0x00]).unwrap(), "0xff00".to_owned()),
    ];
    for (key, _) in keys.clone() {
        let identity = idem_core::store::Identity { key, ..stage.id("any") };
        stage.row(&identity, true, Err(Reason::Permanent)).await;
    }
    let list = async |key: String| {
        let filter = Filter::new().key(key);
        let rows = stage.list(&filter).await;
        rows.into_iter().map(|row| row.identity.key).collect::<Vec<_>>()
    };
    for (key, text) in keys {
        assert_eq!(list(text).await, [key]);
    }
    assert_eq!(list("o".to_owned()).await, []);
}

/// Dead or scheduled, and of this consumer only.
pub async fn a_row_is_found_by_its_id<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("scheduled").await;
    let scheduled = stage.one_scheduled().await.id;
    let dead = stage.dead_letter("dead", Reason::Permanent).await;
    let operator = Operator::new(&stage.store).consumer("billing");
    for (id, reason) in [(scheduled, None), (dead, Some(Reason::Permanent))] {
        let row = operator.show(id).await.unwrap().unwrap().row;
        assert_eq!((row.id, row.reason), (id, reason));
    }
    for id in [dead + 1000, i64::MAX, 0, -1] {
        assert!(operator.show(id).await.unwrap().is_none(), "{id}");
    }
    assert!(Operator::new(&stage.store).consumer("shipping").show(dead).await.unwrap().is_none());
}

/// All that match and can be replayed, on more pages than one; the others stay as they are.
pub async fn a_replay_of_many_leaves_what_needs_a_decision<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for n in 0..23 {
        stage.row(&stage.id(&n.to_string()), true, Err(Reason::Exhausted)).await;
    }
    stage.dead_letter("permanent", Reason::Permanent).await;
    stage.dead_letter("committed", Reason::Committed).await;
    stage.conflict("permanent", "another").await;
    let operator = Operator::new(&stage.store).consumer("billing");
    let exhausted = Filter::new().reason(Reason::Exhausted);
    let go_on = |_: &Done| ControlFlow::Continue(());
    assert_eq!(operator.replay_all(&exhausted, Bulk::default(), go_on).await.unwrap().due, 23);
    assert_eq!((stage.scheduled().await.len(), stage.dead().await.len()), (23, 3));
    let done = operator.replay_all(&Filter::default(), Bulk::default(), go_on).await.unwrap();
    assert_eq!((done.due, done.needs_force, done.needs_key), (1, 1, 1));
    assert_eq!((stage.scheduled().await.len(), stage.dead().await.len()), (24, 2));
    let refused = operator.replay_all(&Filter::new().scheduled(), Bulk::default(), go_on).await.unwrap_err();
    assert!(matches!(refused, Error::Config(_)), "{refused}");
}

/// A message that had used up its attempts has all of them again.
pub async fn a_replayed_row_has_fresh_attempts<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", Reason::Exhausted).await;
    let inbox = stage.world.own("inbox_messages");
    stage.world.run(&format!("UPDATE {inbox} SET attempts = 5")).await;
    stage.replay(id, Replay::Plain).await;
    assert_eq!(stage.one_scheduled().await.attempts, 0);
}

/// A misspelled name is an error with the names that there are, and no empty list.
pub async fn an_unknown_consumer_is_an_error<W: World>(world: W) {
    let stage = Stage::new(world).await;
    Operator::of(&stage.store, "billing").await.unwrap();
    let refused = Operator::of(&stage.store, "biling").await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("\"biling\"") && refused.contains("Nearest: billing"), "{refused}");
}
