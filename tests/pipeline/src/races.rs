//! Races that a message loses by itself, at the commit of its batch.

use idem_conformance::soon;
use idem_conformance::store::World;

use super::line::Line;
use super::orders::{Act, Order};
use super::together::{numbers, taken_together};

const BATCHED: usize = 16;

/// A deferred trigger reports a lost race each time. That says nothing about other batches: these are as large as
/// before.
pub async fn a_race_that_is_lost_at_the_commit_by_itself_narrows_no_batch<W: World>(world: W) {
    if W::FEATURES.lost_race.is_some() {
        assert_eq!(calls_after(world, "40001").await, 1);
    }
}

/// A deadlock needs another transaction, also at the commit: batches are smaller for a while.
pub async fn a_deadlock_at_the_commit_narrows_batches<W: World>(world: W) {
    if W::FEATURES.lost_race.is_some() {
        assert!(calls_after(world, "40P01").await > 1);
    }
}

/// A message fails at each commit with this SQLSTATE, in a batch and alone. Returns in how many calls a batch handler
/// then gets as many messages as fit into one batch.
async fn calls_after<W: World>(world: W, code: &str) -> usize {
    let line = Line::new(world).await;
    let (lose, effects) = (line.world.name("lose"), line.world.name("effects"));
    let trigger = format!(
        "CREATE FUNCTION {lose}() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END $$;
         CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON {effects} DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.name = 'loses') EXECUTE FUNCTION {lose}()"
    );
    line.world.run(&trigger).await;
    let mut orders = numbers(8);
    orders.insert(4, Order::ok("loses"));
    let worker = taken_together(&line, &orders).await;
    // Besides those of `before` and `after`: eight processed, four failures and a dead letter.
    let outcomes = line.outcomes(2 + 8 + 5).await;
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "processed").count(), 10, "{outcomes:?}");
    assert_eq!(line.one_dead().await.attempts, 5);

    line.desk.go.send_replace(false);
    line.publish(Order::new("blocks", &[Act::Wait]));
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 2)).await.unwrap();
    let ids: Vec<String> = (0..BATCHED).map(|n| format!("batched {n}")).collect();
    ids.iter().for_each(|id| line.publish_batched(Order::ok(id)));
    // The worker takes deliveries one by one, so it holds all those before the last one handed out.
    line.publish(Order::ok("last"));
    soon(line.queue.delivered(11 + 2 + BATCHED)).await;
    line.desk.go.send_replace(true);
    line.outcomes(15 + 2 + BATCHED).await;
    worker.stop().await;
    let calls: Vec<String> = line.desk.log().into_iter().filter(|call| call.starts_with("batched ")).collect();
    assert_eq!(calls.join(" ").split(' ').count(), 2 * BATCHED);
    calls.len()
}
