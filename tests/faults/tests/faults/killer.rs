//! A message that may have ended its process, among others. `process` tests that one really does.

use std::time::Duration;

use idem::RetryPolicy;
use idem_faults::{Act, Order, World};
use sqlx::Executor;

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_waits_for_what_runs_and_lets_nothing_start_before_it() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let later = RetryPolicy::new().min_delay(Duration::from_secs(3600));
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker.retry(later));
    world.publish(&Order::new("suspect", Act::Fail(1)));
    world.journal.until("it is scheduled", |journal| journal.of("suspect").len() == 1).await;
    world.publish(&Order::new("running", Act::Hold));
    world.stage.entered(2).await;
    // As left by two processes that ended while it ran.
    let started = "UPDATE {schema}.inbox_messages SET crash_count = 2, run_at = now()";
    world.pool.execute(world.stage.sql(started)).await.unwrap();

    // Others start until the inbox has been polled. The one that does not start is behind the suspect.
    let ids = || world.stage.runs().into_iter().map(|run| run.id).collect::<Vec<_>>();
    let mut others = 0;
    loop {
        assert_eq!(world.stage.attempts("suspect"), [1], "the suspect did not wait for what runs");
        let id = format!("other-{others}");
        world.publish(&Order::new(&id, Act::Write));
        others += 1;
        let processed = world.journal.until("the other one is processed", |journal| !journal.of(&id).is_empty());
        // Longer than a busy machine takes for one that is not behind it.
        if tokio::time::timeout(Duration::from_secs(5), processed).await.is_err() {
            break;
        }
    }
    world.stage.open();
    world.journal.processed(2 + others).await;
    let last = format!("other-{}", others - 1);
    assert_eq!(ids()[ids().len() - 2..], ["suspect".to_owned(), last], "something started before the suspect");
    worker.stop().await.unwrap();
    assert!(world.rows(&store).await.is_empty());
    world.end().await;
}
