//! How far back a worker looks for calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::provider::Fault;

use super::faulty::Do;
use super::paying::Paying;

/// A worker looks for calls that became due since its last take, and every few seconds for all of them.
pub async fn a_call_that_was_due_long_ago_is_made_by_a_worker_that_runs<W: World>(world: W) {
    let paying = Paying::<W>::new(world).await;
    paying.publish("a", [Fault::LoseAnswer]);
    let (takes, of_all) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (takes.clone(), of_all.clone());
    let worker = paying.start_over(move |method, _| {
        match method {
            "take_calls" => _ = counts.0.fetch_add(1, Relaxed),
            "take_all_calls" => _ = counts.1.fetch_add(1, Relaxed),
            _ => {}
        }
        Do::Work
    });
    paying.row(|row| row.attempts == 1).await;
    paying.time_passes(Duration::from_secs(3600)).await;
    paying.completed("a").await;
    let before = of_all.load(Relaxed);
    until(async || of_all.load(Relaxed) != before).await;
    worker.stop().await;
    assert_eq!(paying.counts("a").await, (1, 2, 1));
    let (takes, of_all) = (takes.load(Relaxed), of_all.load(Relaxed));
    assert!(takes > 5 * of_all, "{of_all} of {takes} takes have looked for all calls");
}
