//! Batch handlers, which take all new messages at once.

use idem_conformance::store::World;

use super::line::Line;
use super::orders::{Act, Order};
use super::together::{blocked, each_has_one_effect, ends, let_go, numbers};

/// The batch handler is called once for the whole batch, then for halves of it until the one that rolls back is alone.
pub async fn a_rollback_in_a_batch_handler_harms_no_other_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = blocked(&line).await;
    let mut orders = numbers(6);
    orders.insert(2, Order::new("culprit", &[Act::RollbackWrite]));
    orders.iter().for_each(|order| line.publish_batched(order.clone()));
    let_go(&line, 7).await;
    let outcomes = ends(&line, worker, 7).await;
    assert_eq!((outcomes[0].as_str(), outcomes[1].as_str()), ("dead: rolled back by its handler", "processed"));
    assert_eq!((line.effects("culprit").await, line.one_dead().await.attempts), (0, 1));
    each_has_one_effect(&line, &numbers(6)).await;
}

/// Likewise for COMMIT, whether the handler looks at its result or writes behind it.
pub async fn a_commit_in_a_batch_handler_harms_no_other_message<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = blocked(&line).await;
    let mut orders = numbers(6);
    orders.insert(2, Order::new("commits", &[Act::CommitFail]));
    orders.insert(5, Order::new("writes", &[Act::CommitWrite]));
    orders.iter().for_each(|order| line.publish_batched(order.clone()));
    let_go(&line, 8).await;
    let outcomes = ends(&line, worker, 8).await;
    assert_eq!(outcomes[..2], ["dead: committed by its handler", "dead: committed by its handler"]);
    assert!(outcomes[2..].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    // Each was committed by the run that was its own, where COMMIT is not refused.
    for culprit in ["commits", "writes"] {
        assert_eq!(line.effects(culprit).await, i64::from(!W::FEATURES.refuses_commit), "{culprit}");
    }
    assert_eq!(line.effects("behind its COMMIT").await, 0);
    each_has_one_effect(&line, &numbers(6)).await;
}

/// A batch handler is called once with the new messages, and never with copies or duplicates.
pub async fn a_batch_handler_gets_what_is_new<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_batched(Order::ok("known"));
    line.run(1).await;
    let worker = blocked(&line).await;
    for id in ["a", "known", "b", "a", "c"] {
        line.publish_batched(Order::ok(id));
    }
    let_go(&line, 6).await;
    let outcomes = ends(&line, worker, 6).await;
    assert_eq!(outcomes[..3], ["duplicate", "duplicate", "processed"]);
    let mut calls = line.desk.log();
    calls.sort();
    assert_eq!(calls, ["a b c", "after", "before", "known"]);
    each_has_one_effect(&line, &["known", "a", "b", "c"].map(Order::ok)).await;
}

/// An error of a batch handler names no message, so the batch is halved until the failing one is alone.
pub async fn a_batch_handler_that_fails_gets_halves_until_the_bad_one_is_alone<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = blocked(&line).await;
    let mut orders = numbers(7);
    orders.insert(3, Order::new("bad", &[Act::Permanent]));
    orders.iter().for_each(|order| line.publish_batched(order.clone()));
    let_go(&line, 8).await;
    let outcomes = ends(&line, worker, 8).await;
    assert_eq!((outcomes[0].as_str(), outcomes[1].as_str()), ("dead: permanent", "processed"));
    assert_eq!((line.one_dead().await.attempts, line.effects("bad").await), (1, 0));
    each_has_one_effect(&line, &numbers(7)).await;
}
