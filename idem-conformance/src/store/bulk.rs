//! Changes of many rows by an operator, in chunks.

use std::ops::ControlFlow;
use std::time::Duration;

use idem_core::operator::{Bulk, Done, Filter};
use idem_core::store::{Consumers, HandlerMark, Identity, InboxRows, NewRow, Transactions};
use idem_core::{Delivery, Error, Reason};

use super::filters::{Dead, insert, insert_many, operator, payload};
use super::stage::{Stage, committed, register};
use super::world::World;

/// A message that dies again is not replayed a second time by the same call, so that it ends.
pub async fn a_replay_of_many_ends_while_its_cause_stands<W: World>(world: W) {
    let stage = Stage::new(world).await;
    insert_many(&stage, stage.handler, 1200, "the table is missing").await;
    let (inbox, now) = (stage.world.own("inbox_messages"), stage.store.facts().now);
    let dies = format!(
        "UPDATE {inbox} SET state = 'dead', reason = 'exhausted', died_at = {now}, locked_by = NULL WHERE state = 'scheduled'"
    );
    let (mut chunks, mut told) = (0, 0);
    let anna = operator(&stage);
    let over = tokio::sync::Notify::new();
    let replay = async {
        let all = Filter::new().error("table is missing");
        let done = anna.replay_all(&all, Bulk::default(), |done| {
            chunks += 1;
            told = done.due;
            ControlFlow::Continue(())
        });
        let done = done.await.unwrap();
        over.notify_one();
        done
    };
    let kill = async {
        let mut ends = std::pin::pin!(over.notified());
        loop {
            stage.world.run(&dies).await;
            tokio::select! {
                () = &mut ends => return,
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
    };
    let (done, ()) = tokio::join!(crate::soon(replay), kill);
    assert_eq!((done.due + done.gone, done.is_cut, told), (1200, false, done.due));
    assert!(chunks > 1, "in chunks");
    let noted = format!("SELECT count(*) FROM {}", stage.world.own("operations"));
    assert_eq!(stage.world.number(&noted).await as u64, done.due, "one row for each message");
}

/// The cause may stand: what dies after the call began is left to the next one, although its row is older than others.
pub async fn a_message_that_dies_after_the_call_began_is_left_to_the_next<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("the oldest row").await;
    let dead = |n: i32| Dead::new(stage.handler, format!("{n:05}"), "").payload("payload");
    insert(&stage, &(0..2200).map(dead).collect::<Vec<_>>()).await;
    let (inbox, now) = (stage.world.own("inbox_messages"), stage.store.facts().now);
    let dies = format!(
        "UPDATE {inbox} SET state = 'dead', reason = 'exhausted', died_at = {now} WHERE id = (SELECT min(id) FROM {inbox})"
    );
    // Three windows. The row dies before the answer of the second, and is in the third.
    let (anna, began) = (operator(&stage), tokio::sync::Notify::new());
    let all = payload("payload");
    let replay = anna.replay_all(&all, Bulk { rate: Some(1000), ..Bulk::default() }, |_| {
        began.notify_one();
        ControlFlow::Continue(())
    });
    let kill = async {
        began.notified().await;
        stage.world.run(&dies).await;
    };
    let (done, ()) = tokio::join!(crate::soon(replay), kill);
    assert_eq!(
        (done.unwrap().due, stage.one_dead().await.identity.key.to_string()),
        (2200, "the oldest row".to_owned())
    );
    let next = anna.replay_all(&all, Bulk::default(), go_on).await.unwrap();
    assert_eq!(next.due, 1);
}

/// Also if it has died in the millisecond in which the command begins.
pub async fn a_message_that_has_just_died_is_replayed<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for n in 0..25 {
        insert(&stage, &[Dead::new(stage.handler, n.to_string(), "")]).await;
        let done = operator(&stage).replay_all(&Filter::new(), Bulk::default(), go_on).await.unwrap();
        assert_eq!(done.due, 1, "message {n}");
    }
}

/// A limit, a break and a dry run leave the rest; a second call goes on with it.
pub async fn a_replay_of_many_ends_where_it_is_told_to<W: World>(world: W) {
    let stage = Stage::new(world).await;
    insert_many(&stage, stage.handler, 1100, "").await;
    let anna = operator(&stage);
    let left = async || stage.world.number(&dead_rows(&stage)).await;
    let dry = anna.replay_all(&Filter::new(), Bulk { dry_run: true, ..Bulk::default() }, go_on).await.unwrap();
    assert_eq!((dry.due, left().await), (1100, 1100));
    let some = anna.replay_all(&Filter::new(), Bulk { limit: Some(30), ..Bulk::default() }, go_on).await.unwrap();
    assert_eq!((some.due, some.is_cut, left().await), (30, true, 1070));
    let broken = anna.replay_all(&Filter::new(), Bulk::default(), |_| ControlFlow::Break(())).await.unwrap();
    assert!(broken.is_cut && broken.due < 1070 && left().await == 1070 - broken.due as i64, "{broken:?}");
    let dropped = anna.discard_all(&Filter::new(), Bulk { limit: Some(7), ..Bulk::default() }, go_on).await.unwrap();
    assert_eq!((dropped.discarded, left().await), (7, 1063 - broken.due as i64));
    let rest = anna.replay_all(&Filter::new(), Bulk::default(), go_on).await.unwrap();
    assert_eq!((rest.due, rest.is_cut, left().await), (1063 - broken.due, false, 0));
    for refused in [Filter::new().scheduled(), Filter::new().scheduled().handler("order_paid")] {
        let refused = anna.replay_all(&refused, Bulk::default(), go_on).await.unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused}");
    }
    let never = anna.replay_all(&Filter::new(), Bulk { rate: Some(0), ..Bulk::default() }, go_on).await;
    assert!(matches!(never, Err(Error::Config(_))), "a rate of nothing never ends: {never:?}");
}

/// What it counts is what happens then.
pub async fn a_dry_run_counts_what_a_replay_does<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let ways = [(false, false), (true, false), (false, true)].map(|(force, new_keys)| Bulk {
        force,
        new_keys,
        ..Bulk::default()
    });
    let anna = operator(&stage);
    for bulk in ways {
        let dead = |reason: &Reason| Dead::new(stage.handler, format!("{reason} {bulk:?}"), "").reason(*reason);
        insert(&stage, &Reason::ALL.iter().map(dead).collect::<Vec<_>>()).await;
        let counted = |done: Done| (done.due, done.needs_force, done.needs_key, done.unresolved);
        // A rate of one row a second would take longer than the patience of the test.
        let dry = Bulk { dry_run: true, rate: Some(1), ..bulk };
        let foreseen = crate::soon(anna.replay_all(&Filter::new(), dry, go_on)).await.unwrap();
        assert_eq!(
            foreseen.due + foreseen.needs_force + foreseen.needs_key + foreseen.unresolved,
            Reason::ALL.len() as u64
        );
        let done = anna.replay_all(&Filter::new(), bulk, go_on).await.unwrap();
        assert_eq!(counted(foreseen), counted(done), "{bulk:?}");
        stage.world.run(&format!("DELETE FROM {}", stage.world.own("inbox_messages"))).await;
    }
}

/// A local message has no other way to its handler than the key that it has, and a call should be looked at by a person.
pub async fn new_keys_leave_local_messages_and_handlers_that_call<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let caller = register(&stage.store, "billing", "charge").await;
    stage.store.mark(&[caller], HandlerMark::Calls).await.unwrap();
    // A NUL in a header must not make a database refuse the question for its source.
    let headers = || [("odd".to_owned(), "a\0b".to_owned())].into_iter().collect();
    for (key, source, handler) in
        [("queue", "orders", stage.handler), ("local", "local", stage.handler), ("call", "orders", caller)]
    {
        let identity = Identity { handler, ..stage.message(key, "another") };
        let delivery = Delivery::new(source, "another");
        let delivery = if source == "local" { delivery.with_headers(headers()) } else { delivery };
        let mut txn = stage.begin().await;
        let row = NewRow::new(&identity, &delivery, Err(Reason::Conflict));
        stage.store.insert(&mut txn, &[row]).await.unwrap();
        committed(stage.commit(txn).await);
    }
    let done =
        operator(&stage).replay_all(&Filter::new(), Bulk { new_keys: true, ..Bulk::default() }, go_on).await.unwrap();
    assert_eq!((done.due, done.needs_key), (1, 2));
    let mut left: Vec<_> = stage.dead().await.iter().map(|row| row.identity.key.to_string()).collect();
    left.sort();
    assert_eq!(left, ["call", "local"]);
}

fn go_on(_: &Done) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn dead_rows<W: World>(stage: &Stage<W>) -> String {
    format!("SELECT count(*) FROM {} WHERE state = 'dead'", stage.world.own("inbox_messages"))
}
