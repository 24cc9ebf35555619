//! Relays under load, and after pauses.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idem_core::Outgoing;
use idem_core::store::{OutboxRows, Page};

use crate::soon;
use crate::store::World;
use idem_test::Reply;

use super::line::{Line, message, text};

/// Long before the lease would have ended.
pub async fn a_standing_relay_goes_on_at_once_when_another_ends<W: World>(world: W) {
    let line = Line::new(world).await;
    let long = Duration::from_secs(600);
    let relay = || line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(long));
    let first = relay();
    line.stage([message("one")]).await;
    line.published(1).await;
    let second = relay();
    // It has been refused the lease by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    first.stop().await.unwrap();
    let began = Instant::now();
    line.stage((0..20).map(|n| message(n).key(n))).await;
    line.published(21).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    second.stop().await.unwrap();
}

/// Its lease ends, but no other relay takes it: then what it has published is deleted, and not published again.
pub async fn a_relay_that_was_paused_publishes_nothing_twice<W: World>(world: W) {
    let line = Line::new(world).await;
    let away = Arc::new(AtomicBool::new(false));
    let is_away = away.clone();
    let store = line.failing(move |_| is_away.load(SeqCst));
    let lease = Duration::from_millis(600);
    let relay = line.start_with(line.relay(store, line.sink.clone()).lease_duration(lease));
    let hook = away.clone();
    line.sink.on_publish(move |message| {
        if text(message) == "last" {
            hook.store(true, SeqCst);
        }
        Reply::Confirm
    });
    line.stage([message("one").key("k"), message("last").key("k")]).await;
    line.published(2).await;
    tokio::time::sleep(3 * lease).await;
    away.store(false, SeqCst);
    line.is_empty().await;
    line.sink.on_publish(|_| Reply::Confirm);
    line.stage([message("after").key("k")]).await;
    assert_eq!(line.published(3).await, ["one", "last", "after"]);
    relay.stop().await.unwrap();
    assert_eq!(line.sink.published().len(), 3);
}

/// Many messages for queues that hang, and nothing else that shows that the broker answers. Each is for another queue, so
/// none of these is known to hang.
pub async fn many_messages_without_an_answer_stop_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    line.sink.on_publish(|message| if text(message).starts_with("hangs") { Reply::Hang } else { Reply::Confirm });
    line.stage((0..100).map(|n| Outgoing::new(format!("queue {n}"), format!("hangs {n}")))).await;
    line.stage((0..10).map(|n| message(format!("good {n}")))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_secs(1));
    let relay = line.start_with(relay.concurrency(8));
    line.published(10).await;
    // All that is left hangs, and has been tried before.
    soon(line.sink.wait_for(|sink| sink.calls() > 120)).await;
    for n in 0..5 {
        let began = Instant::now();
        line.stage([message(n)]).await;
        line.published(11 + n).await;
        assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    }
    assert!(line.waiting().await.iter().all(|row| row.message.attempt() == 1));
    relay.crash().await;
}

/// More messages get no answer than may wait, each for another queue. When the broker answers again, all are published.
pub async fn a_relay_in_which_too_many_messages_wait_goes_on<W: World>(world: W) {
    let line = Line::new(world).await;
    let tried = Arc::new(Mutex::new(HashSet::new()));
    let seen = tried.clone();
    line.sink.on_publish(move |message| {
        seen.lock().unwrap().insert(message.id());
        Reply::Hang
    });
    line.stage((0..1500).map(|n| Outgoing::new(format!("queue {n}"), n.to_string()))).await;
    let relay = line.relay(line.store.clone(), line.sink.clone()).publish_timeout(Duration::from_millis(20));
    let relay = line.start_with(relay.concurrency(10));
    // With 10 at a time, 1000 may be parked. From then on there are only second attempts.
    soon(line.sink.wait_for(|_| tried.lock().unwrap().len() >= 1000)).await;
    let calls = line.sink.calls();
    soon(line.sink.wait_for(|sink| sink.calls() >= calls + 200)).await;
    line.sink.on_publish(|_| Reply::Confirm);
    line.published(1500).await;
    relay.stop().await.unwrap();
}

/// They were refused, and are published again at the same time. No more of them are read than take 64 MiB, and one more.
pub async fn large_messages_whose_time_has_come_do_not_fill_the_memory<W: World>(world: W) {
    let line = Line::new(world).await;
    let (tried, hanging) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicUsize::new(0)));
    let seen = tried.clone();
    line.sink.on_publish(move |message| {
        seen.lock().unwrap().insert(message.id());
        Reply::Refuse("not now".to_owned())
    });
    for _ in 0..4 {
        line.stage([Outgoing::new("orders", vec![b'x'; 22 * 1024 * 1024])]).await;
    }
    let retry = idem_core::RetryPolicy::new().max_attempts(100).min_delay(Duration::from_secs(1)).factor(1.0);
    let relay = line.relay(line.store.clone(), line.sink.clone()).retry(retry).publish_timeout(Duration::from_secs(60));
    let relay = line.start_with(relay);
    soon(line.sink.wait_for(|_| tried.lock().unwrap().len() == 4)).await;
    let hung = hanging.clone();
    line.sink.on_publish(move |_| {
        hung.fetch_add(1, SeqCst);
        Reply::Hang
    });
    soon(line.sink.wait_for(|_| hanging.load(SeqCst) >= 3)).await;
    // There is no signal that the last one is not read. Its time has come by then.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(hanging.load(SeqCst), 3);
    relay.crash().await;
}

/// A rejection is recorded, and the answer of the database is lost: it is recorded again, and no attempt is lost by that.
pub async fn a_record_without_an_answer_costs_no_attempt<W: World>(world: W) {
    let line = Line::new(world).await;
    let lost = Arc::new(AtomicUsize::new(0));
    let losing = lost.clone();
    let store = line.failing(move |method| match method {
        "failures_are_recorded" => losing.fetch_add(1, SeqCst).is_multiple_of(2),
        _ => false,
    });
    line.sink.on_publish(|_| Reply::Refuse("no".to_owned()));
    let relay = line.start_with(line.relay(store, line.sink.clone()));
    line.stage([message("one").key("k")]).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    assert_eq!((line.sink.calls(), lost.load(SeqCst)), (3, 6), "it has three attempts");
    let dead = line.store.dead_outgoing(line.outbox, Page::default()).await.unwrap();
    assert_eq!(dead.iter().map(|dead| dead.attempts).collect::<Vec<_>>(), [3]);
}

/// Messages of a key are to be read, and no read has an answer. It tries again after a while, and not at once.
pub async fn a_database_that_refuses_reads_is_seldom_asked<W: World>(world: W) {
    let line = Line::new(world).await;
    let (away, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_away, refusing) = (away.clone(), refused.clone());
    let store = line.failing(move |method| {
        let fails = method == "read_outbox" && is_away.load(SeqCst);
        refusing.fetch_add(usize::from(fails), SeqCst);
        fails
    });
    let hook = away.clone();
    line.sink.on_publish(move |message| {
        if text(message) == "0" {
            hook.store(true, SeqCst);
        }
        Reply::Confirm
    });
    line.stage((0..300).map(|n| message(n).key("k"))).await;
    let relay = line.start_with(line.relay(store, line.sink.clone()));
    // Those that were kept in memory. The key is to be read for since half of them are published.
    line.published(101).await;
    let before = refused.load(SeqCst);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let more = refused.load(SeqCst) - before;
    assert!(more < 20, "{more} reads in two seconds");
    line.sink.on_publish(|_| Reply::Confirm);
    away.store(false, SeqCst);
    line.published(300).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// The DELETE has run, and its answer is lost.
pub async fn a_delete_without_an_answer_makes_no_copy<W: World>(world: W) {
    let line = Line::new(world).await;
    let lost = Arc::new(AtomicUsize::new(0));
    let losing = lost.clone();
    let store = line.failing(move |method| method == "published_is_deleted" && losing.fetch_add(1, SeqCst) < 2);
    let relay = line.start_with(line.relay(store, line.sink.clone()));
    line.stage([message("one").key("k"), message("two").key("k")]).await;
    line.published(2).await;
    soon(async {
        while lost.load(SeqCst) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    line.stage([message("three").key("k")]).await;
    assert_eq!(line.published(3).await, ["one", "two", "three"]);
    line.is_empty().await;
    relay.stop().await.unwrap();
    assert_eq!(line.sink.published().len(), 3);
}
