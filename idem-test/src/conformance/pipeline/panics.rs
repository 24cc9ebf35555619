//! Failures outside of handlers. A panic in a user's code costs its message, a panic in one of the worker's tasks ends
//! the worker, and failing gauges cost nothing.

use idem_core::store::StoreError;
use idem_core::{Error, Reason};
use tokio::sync::watch;

use crate::Publication;
use crate::conformance::soon;
use crate::conformance::store::World;

use super::faulty::Do;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// A panic in a key or a fingerprint: the message is kept in full, other messages go on, and the source stays open.
pub async fn a_key_or_fingerprint_that_panics_is_a_dead_letter<W: World>(world: W) {
    let line = Line::new(world).await;
    for what in ["key", "fingerprint"] {
        line.publish(Publication::from(Order::ok(what)).header("panics", what));
        line.publish(Order::ok(&format!("behind the {what}")));
    }
    let mut outcomes = line.run(4).await;
    outcomes.sort();
    assert_eq!(outcomes, ["dead: no key", "dead: no key", "processed", "processed"]);
    for row in line.dead().await {
        let panics = row.delivery.headers().get_str("panics").unwrap().to_owned();
        assert_eq!((row.reason, row.sightings), (Some(Reason::NoKey), 1));
        assert!(row.error.contains(&format!("the {panics} panicked: this {panics} panics")), "{}", row.error);
        assert_eq!(row.delivery.payload(), Publication::from(Order::ok(&panics)).payload());
    }
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.redeliveries, counts.acks), (4, 0, 4), "the source was opened once");
}

/// Each task by itself, at the first panic, with the name of the task.
pub async fn a_task_that_panics_ends_the_worker_with_an_error<W: World>(world: W) {
    let line = Line::new(world).await;
    for (method, task) in [("poll_due", "inbox"), ("stats", "gauges")] {
        let hook = move |at: &str, _: &[u8]| if at == method { Do::Panic } else { Do::Work };
        let ended = soon(line.start_over(hook, Settings::default()).ended()).await;
        let Err(Error::Panicked { task: named, text, .. }) = ended else { panic!("{method}: {ended:?}") };
        assert_eq!((named, text.as_str()), (task, "the store panics"));
    }
}

/// The worker's deliveries are not settled, and the next worker processes them.
pub async fn a_panic_on_a_message_ends_the_worker_and_loses_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    let hook = |at: &str, key: &[u8]| if at == "claim" && key == b"a" { Do::Panic } else { Do::Work };
    let ended = soon(line.start_over(hook, Settings::default()).ended()).await;
    assert!(matches!(ended, Err(Error::Panicked { .. })), "{ended:?}");
    let counts = line.queue.counts();
    assert_eq!((counts.deliveries, counts.acks, counts.ready), (1, 0, 1), "it was tried once, and is back");
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!(line.effects("a").await, 1);
}

/// Gauges that fail or hang are not an outage: nothing waits for them, and the database is not pinged.
pub async fn gauges_that_fail_or_hang_are_no_outage<W: World>(world: W) {
    let line = Line::new(world).await;
    for (n, hangs) in [false, true].into_iter().enumerate() {
        let counted = watch::Sender::new(false);
        let (asked, mut counting) = (counted.clone(), counted.subscribe());
        let hook = move |at: &str, _: &[u8]| match at {
            "stats" => {
                asked.send_replace(true);
                if hangs { Do::Hang } else { Do::Fail(StoreError::Unavailable("too slow".into())) }
            }
            // An outage would never end.
            "ping" => Do::Hang,
            _ => Do::Work,
        };
        let worker = line.start_over(hook, Settings::default());
        soon(counting.wait_for(|counted| *counted)).await.unwrap();
        for more in 1..=3 {
            line.publish(Order::ok(&format!("{n} {more}")));
            line.outcomes(3 * n + more).await;
        }
        soon(line.queue.idle()).await;
        worker.stop().await;
    }
}
