//! Failures of messages, of the broker and of the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use idem_core::store::Page;
use idem_core::{Error, StoreOutbox};

use crate::soon;
use crate::store::World;
use idem_test::Reply;

use super::line::{Line, message, text};

/// A relay gives up after its attempts, also of a message at which the sink panics. The dead letter has the error, and is
/// out of the way.
pub async fn a_message_that_is_given_up_is_dead_and_its_key_goes_on<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|message| match text(message).as_str() {
        "refused" => Reply::Refuse("no queue is bound".to_owned()),
        "panics" => Reply::Panic,
        _ => Reply::Confirm,
    });
    line.stage([message("refused").key("k"), message("next").key("k")]).await;
    line.stage([message("panics").key("l"), message("next").key("l")]).await;
    let relay = line.start();
    assert_eq!(line.published(2).await, ["next", "next"]);
    line.is_empty().await;
    relay.stop().await.unwrap();
    let dead = StoreOutbox::new(&line.store, "billing").list(Page::default()).await.unwrap();
    assert_eq!(dead.len(), 2);
    for (bad, error) in [("refused", "no queue is bound"), ("panics", "the sink panicked")] {
        let dead = dead.iter().find(|dead| text(&dead.message) == bad).unwrap();
        assert!(dead.attempts == 3 && dead.error.contains(error), "{bad}: {} attempts, {}", dead.attempts, dead.error);
    }
    assert_eq!(line.sink.calls(), 8);
}

/// An operator of its outbox replays or discards it, once.
pub async fn a_dead_letter_is_replayed_under_its_id_or_discarded<W: World>(world: W) {
    let line = Line::new(world).await;
    let repaired = Arc::new(AtomicBool::new(false));
    let is_repaired = repaired.clone();
    line.sink.on_publish(move |_| match is_repaired.load(SeqCst) {
        true => Reply::Confirm,
        false => Reply::Refuse("no".to_owned()),
    });
    line.stage([message("one"), message("two")]).await;
    let relay = line.start();
    line.is_empty().await;
    let outbox = StoreOutbox::new(&line.store, "billing");
    let dead = outbox.list(Page::default()).await.unwrap();
    assert_eq!(dead.len(), 2);
    let stats = outbox.stats(100).await.unwrap();
    assert_eq!((stats.waiting, stats.dead, stats.relay_seen.is_some()), (0, 2, true));
    repaired.store(true, SeqCst);
    let other = StoreOutbox::new(&line.store, "shipping");
    assert!(!other.replay(dead[0].id).await.unwrap() && !other.discard(dead[0].id).await.unwrap());
    assert!(other.list(Page::default()).await.unwrap().is_empty());
    assert!(outbox.discard(dead[0].id).await.unwrap());
    assert!(!outbox.discard(dead[0].id).await.unwrap());
    assert!(!outbox.replay(dead[0].id).await.unwrap());
    assert!(outbox.replay(dead[1].id).await.unwrap());
    assert!(!outbox.replay(dead[1].id).await.unwrap());
    assert_eq!(line.published(1).await, [text(&dead[1].message)]);
    assert_eq!(line.sink.published()[0].id(), dead[1].message.id());
    assert!(outbox.list(Page::default()).await.unwrap().is_empty());
    relay.stop().await.unwrap();
}

/// However long it lasts, all messages are published afterwards as in their first attempt.
pub async fn a_broker_that_is_away_costs_no_attempt<W: World>(world: W) {
    let line = Line::new(world).await;
    let away = Arc::new(AtomicBool::new(true));
    let is_away = away.clone();
    line.sink.on_publish(move |_| if is_away.load(SeqCst) { Reply::Away } else { Reply::Confirm });
    line.stage((0..30).map(|n| message(n).key(n % 3))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone());
    let health = relay.health();
    let relay = line.start_with(relay);
    soon(line.sink.wait_for(|sink| sink.calls() >= 12)).await;
    assert!(!health.broker() && health.database());
    assert!(line.waiting().await.iter().all(|row| row.message.attempt() == 1 && row.due.is_zero()));
    away.store(false, SeqCst);
    line.published(30).await;
    line.is_empty().await;
    assert!(health.is_ready());
    relay.stop().await.unwrap();
    let published = line.sink.published();
    assert!(published.iter().all(|message| message.attempt() == 1));
    for key in 0..3 {
        let of_key: Vec<i32> =
            published.iter().map(|message| text(message).parse().unwrap()).filter(|n| n % 3 == key).collect();
        assert!(of_key.is_sorted() && of_key.len() == 10, "{of_key:?}");
    }
    assert!(line.sink.calls() < 200, "the relay waits between its attempts: {}", line.sink.calls());
}

/// Between publish and confirm: at least once, under one id.
pub async fn a_lost_confirm_is_published_again_under_the_same_id<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut lost = false;
    line.sink.on_publish(move |_| match std::mem::replace(&mut lost, true) {
        true => Reply::Confirm,
        false => Reply::LoseConfirm,
    });
    line.stage([message("one").key("k"), message("two").key("k")]).await;
    let relay = line.start();
    assert_eq!(line.published(3).await, ["one", "one", "two"]);
    let published = line.sink.published();
    assert_eq!(published[0].id(), published[1].id());
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// A queue that hangs does not make the broker look away.
pub async fn a_message_without_an_answer_stops_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    let hung = Arc::new(AtomicUsize::new(0));
    let hangs = hung.clone();
    line.sink.on_publish(move |message| match text(message) == "hangs" {
        true => {
            hangs.fetch_add(1, SeqCst);
            Reply::Hang
        }
        false => Reply::Confirm,
    });
    line.stage([message("hangs").key("k"), message("behind").key("k")]).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(1));
    let health = relay.health();
    let relay = line.start_with(relay);
    soon(line.sink.wait_for(|sink| sink.calls() >= 1)).await;
    let away = Arc::new(AtomicBool::new(false));
    let (is_away, broker) = (away.clone(), health.clone());
    let watch = tokio::spawn(async move {
        loop {
            is_away.fetch_or(!broker.broker(), SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let mut n = 0;
    // Beyond its first timeouts.
    while hung.load(SeqCst) < 4 {
        line.stage([message(n)]).await;
        n += 1;
        line.published(n).await;
    }
    watch.abort();
    assert!(!away.load(SeqCst), "others are confirmed");
    assert!(line.sink.published().iter().all(|message| text(message) != "behind"));
    assert!(line.waiting().await.iter().all(|row| row.message.attempt() == 1));
    relay.crash().await;
}

/// Neither by a relay that drains nor by one that dies.
pub async fn a_message_that_is_not_confirmed_is_never_deleted<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|_| Reply::Hang);
    line.stage([message("one"), message("two").key("k")]).await;
    let ids: Vec<_> = line.waiting().await.iter().map(|row| row.message.id()).collect();
    for crashes in [true, false] {
        let calls = line.sink.calls();
        let relay = line.relay(line.store.clone(), line.sink.clone());
        let relay = relay.shutdown_timeout(Duration::from_millis(300)).lease_duration(Duration::from_millis(500));
        let relay = line.start_with(relay);
        soon(line.sink.wait_for(|sink| sink.calls() >= calls + 2)).await;
        match crashes {
            true => relay.crash().await,
            false => relay.stop().await.unwrap(),
        }
        assert_eq!(line.waiting().await.len(), 2);
    }
    line.sink.on_publish(|_| Reply::Confirm);
    let relay = line.start();
    line.published(2).await;
    assert!(line.sink.published().iter().all(|message| ids.contains(&message.id())));
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// Between confirm and delete.
pub async fn a_crash_before_the_delete_publishes_again_under_the_same_id<W: World>(world: W) {
    let line = Line::new(world).await;
    let tries = Arc::new(AtomicUsize::new(0));
    let tried = tries.clone();
    let store = line.failing(move |method| method == "delete_published" && tried.fetch_add(1, SeqCst) < usize::MAX);
    line.stage([message("one").key("k")]).await;
    let relay = line.relay(store, line.sink.clone()).lease_duration(Duration::from_millis(500));
    let relay = line.start_with(relay);
    line.published(1).await;
    soon(async {
        while tries.load(SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    relay.crash().await;
    assert_eq!(line.waiting().await.len(), 1);
    let relay = line.start();
    assert_eq!(line.published(2).await, ["one", "one"]);
    let published = line.sink.published();
    assert_eq!(published[0].id(), published[1].id());
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// While the relay keeps its lease, it publishes nothing twice, whichever of its statements fail.
pub async fn a_database_that_is_away_loses_and_repeats_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    let away = Arc::new(AtomicBool::new(false));
    let is_away = away.clone();
    let store = line.failing(move |_| is_away.load(SeqCst));
    let relay = line.start_with(line.relay(store, line.sink.clone()));
    line.stage([message("before").key("k")]).await;
    line.published(1).await;
    for round in 0..3 {
        away.store(true, SeqCst);
        line.stage((0..10).map(|n| message(format!("{round} {n}")).key("k"))).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        away.store(false, SeqCst);
        line.published(1 + 10 * (round + 1)).await;
    }
    line.is_empty().await;
    relay.stop().await.unwrap();
    assert_eq!(line.sink.published().len(), 31);
    assert_eq!(line.sink.overlaps(), 0);
}

/// A defect of the sink, which panics at each message, is an error of the relay, which loses nothing.
pub async fn a_sink_that_panics_ends_the_relay<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|_| Reply::Panic);
    line.stage((0..5).map(message)).await;
    let ended = line.start().ended().await;
    assert!(matches!(&ended, Err(Error::Panicked { task: "publishing", .. })), "{ended:?}");
    line.sink.on_publish(|_| Reply::Confirm);
    let relay = line.start();
    line.published(5).await;
    relay.stop().await.unwrap();
}
