//! Refusals by the database: of one message, of all of them, or of a connection.

use std::time::Duration;

use idem_core::DeliveryOrder;
use tokio::sync::watch;

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;

use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;
use super::watched::{Watched, watched};

/// All other messages are processed meanwhile. The refused one stays with the worker, unacked, and is processed once
/// nothing refuses it.
pub async fn a_message_that_the_database_refuses_is_held_and_harms_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", Some("bad")).await;
    let (settings, shown) = watched(2);
    line.publish(Order::ok("bad"));
    let worker = line.start_with(settings);
    let watched = Watched::of(shown).await;
    line.publish_numbers(0..50);
    assert!(line.outcomes(50).await.iter().all(|outcome| outcome == "processed"));
    soon(line.queue.settled(50)).await;
    // It is refused more than once.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let counts = line.queue.counts();
    assert_eq!((counts.unsettled, counts.ready, counts.redeliveries), (1, 0, 0), "{counts:?}");
    assert_eq!(line.effects("bad").await, 0);
    watched.was_always_ready();
    line.allow("processed_messages").await;
    assert_eq!(line.outcomes(51).await[50], "processed");
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("bad").await, line.desk.runs("bad")), (1, 1));
}

/// There is one lane, and more deliveries than it processes: a refused message leaves the lane to the others.
pub async fn a_refused_message_of_a_batch_costs_no_lane<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", Some("bad")).await;
    let (settings, shown) = watched(1);
    for n in 0..60 {
        line.publish(Order::ok(&if n == 4 { "bad".to_owned() } else { n.to_string() }));
    }
    let worker = line.start_with(settings);
    let watched = Watched::of(shown).await;
    assert!(line.outcomes(59).await.iter().all(|outcome| outcome == "processed"));
    watched.was_always_ready();
    line.allow("processed_messages").await;
    assert_eq!(line.outcomes(60).await[59], "processed");
    worker.stop_once_idle(&line.queue).await;
    for n in 0..60 {
        let id = if n == 4 { "bad".to_owned() } else { n.to_string() };
        assert_eq!(line.effects(&id).await, 1, "{id}");
    }
}

/// No message of its key passes it, and other keys do not wait for it.
pub async fn a_refused_message_keeps_its_place_and_costs_no_lane<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", Some("bad")).await;
    let publish = |id: &str, key: u64| line.publish(Publication::from(Order::ok(id)).ordering_key(key));
    publish("bad", 1);
    publish("behind", 1);
    let (settings, shown) = watched(1);
    let worker = line.start_with(Settings { order: DeliveryOrder::Key, ..settings });
    let watched = Watched::of(shown).await;
    for n in 0..10 {
        publish(&n.to_string(), 2);
    }
    line.outcomes(10).await;
    assert_eq!(line.desk.runs("behind"), 0);
    watched.was_always_ready();
    line.allow("processed_messages").await;
    line.outcomes(12).await;
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.desk.log()[10..], ["bad", "behind"]);
    assert_eq!(line.queue.counts().redeliveries, 0);
}

/// A drain releases held deliveries.
pub async fn a_drain_releases_what_the_database_refuses<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("INSERT", "processed_messages", Some("bad")).await;
    line.publish(Order::ok("bad"));
    let worker = line.start();
    line.publish(Order::ok("other"));
    line.outcomes(1).await;
    worker.stop().await;
    let counts = line.queue.counts();
    assert_eq!((counts.acks, counts.ready, counts.unsettled), (1, 1, 0));
    line.allow("processed_messages").await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
}

/// A failure whose row is refused: the message is stored as soon as possible, and its handler does not run before that.
pub async fn a_failure_that_the_database_refuses_to_record_harms_no_other<W: World>(world: W) {
    let Some(line) = Line::new_if(!world.inbox(), world).await else { return };
    line.refuse("INSERT", "inbox_messages", Some("bad")).await;
    let (settings, shown) = watched(2);
    let tries = watch::Sender::new(0);
    let tried = tries.clone();
    let hook = move |at: &str, key: &[u8]| {
        if at == "insert" && key == b"bad" {
            tried.send_modify(|tries| *tries += 1);
        }
        Do::Work
    };
    let worker = line.start_over(hook, settings);
    let watched = Watched::of(shown).await;
    line.publish(Order::new("bad", &[Act::Fail, Act::Ok]).by_attempt());
    line.publish_numbers(0..50);
    line.outcomes(50).await;
    soon(line.queue.settled(50)).await;
    soon(tries.subscribe().wait_for(|tries| *tries > 0)).await.unwrap();
    let runs = line.desk.runs("bad");
    soon(tries.subscribe().wait_for(|tries| *tries > 3)).await.unwrap();
    assert_eq!((line.queue.counts().unsettled, line.desk.runs("bad")), (1, runs));
    watched.was_always_ready();
    line.allow("inbox_messages").await;
    // Only the record was retried.
    assert_eq!(line.outcomes(52).await[50..], ["scheduled 1", "processed"]);
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("bad").await, line.desk.runs("bad")), (1, runs + 1));
}

/// A row whose claim cannot be dated waits longer and longer, and no attempt is recorded.
pub async fn a_row_that_the_database_refuses_harms_no_other<W: World>(world: W) {
    let line = Line::new(world).await;
    line.refuse("UPDATE", "processed_messages", Some("bad")).await;
    line.publish_redelivered(Order::ok("bad")).await;
    let (settings, shown) = watched(2);
    let worker = line.start_with(settings);
    let watched = Watched::of(shown).await;
    let first = usize::from(!line.world.inbox());
    line.publish_numbers(0..50);
    line.outcomes(50 + first).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    watched.was_always_ready();
    let row = line.scheduled().await.remove(0);
    assert_eq!((row.attempts, row.lost_connections), (0, 0));
    line.allow("processed_messages").await;
    assert_eq!(line.outcomes(51 + first).await[50 + first], "processed");
    worker.stop().await;
    assert_eq!((line.effects("bad").await, line.desk.runs("bad")), (1, 1));
}
