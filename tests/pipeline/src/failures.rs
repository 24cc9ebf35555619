//! Handlers that fail in every way.

use std::time::Duration;

use idem_core::{Reason, RetryPolicy};

use idem_conformance::store::World;
use idem_conformance::{soon, until};

use super::line::{Line, sorted};
use super::orders::{Act, Order};
use super::settings::Settings;

/// Fails once with `act`. The second attempt fails too and the third succeeds; only the last one has an effect.
async fn fails_once<W: World>(world: W, act: Act, settings: Settings, error: &str) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[act, Act::Fail, Act::Ok]).by_attempt());
    line.publish(Order::ok("neighbour"));
    assert_eq!(
        sorted(line.run_with(settings.clone(), 4).await),
        ["processed", "processed", "scheduled 1", "scheduled 2"]
    );
    // Together with its neighbour it may have run once more, with no attempt recorded.
    let most = if line.world.batch() > 1 { 4 } else { 3 };
    assert!((3..=most).contains(&line.desk.runs("a")), "{}", line.desk.runs("a"));
    assert_eq!((line.effects("a").await, line.effects("neighbour").await), (1, 1));

    // The error of the attempt is kept.
    line.publish(Order::new("b", &[act]));
    line.run_with(Settings { retry: Settings::late().retry, ..settings }, 5).await;
    let row = &line.scheduled().await[0];
    assert!(row.error.contains(error), "{:?}", row.error);
    assert_eq!((row.attempts, row.crash_count, row.lost_connections, row.locked_by), (1, 0, 0, None));
    assert_eq!(line.effects("b").await, 0);
}

/// A returned error.
pub async fn an_error_rolls_back_and_schedules<W: World>(world: W) {
    fails_once(world, Act::Fail, Settings::default(), "attempt 1 has failed").await;
}

/// An error is user code as well: a panic in its source or in its drop ends neither the lane nor the worker.
pub async fn an_error_that_panics_is_a_failure_of_its_message<W: World>(world: W) {
    fails_once(world, Act::FailNasty, Settings::default(), "a nasty error").await;
}

/// A panic costs one attempt and nothing else.
pub async fn a_panic_rolls_back_and_schedules<W: World>(world: W) {
    fails_once(world, Act::Panic, Settings::default(), "the handler panics").await;
}

/// A handler that exceeds the handler timeout is dropped.
pub async fn a_handler_timeout_rolls_back_and_schedules<W: World>(world: W) {
    let settings = Settings { handler_timeout: Duration::from_secs(1), ..Settings::default() };
    fails_once(world, Act::Hang, settings, "exceeded its timeout").await;
}

/// Dropping it runs the handler's own code: a panic there ends neither the lane nor the worker.
pub async fn a_panic_as_a_late_handler_is_dropped_is_its_failure<W: World>(world: W) {
    let settings = Settings { handler_timeout: Duration::from_secs(1), ..Settings::default() };
    fails_once(world, Act::HangBomb, settings, "exceeded its timeout").await;
}

/// Five attempts in total; then it is a dead letter with its last error.
pub async fn retries_end_as_exhausted_after_five_attempts<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Fail]));
    let outcomes = line.run(5).await;
    assert_eq!(outcomes, ["scheduled 1", "scheduled 2", "scheduled 3", "scheduled 4", "dead: exhausted"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (0, 5));
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.attempts, dead.error.as_str()), (Some(Reason::Exhausted), 5, "attempt 5 has failed"));
    line.publish(Order::new("a", &[Act::Fail]));
    assert_eq!(line.run(6).await[5], "duplicate");
    assert_eq!(line.one_dead().await.attempts, 5, "a copy of a dead letter changes nothing");
}

/// A retry cannot succeed.
pub async fn a_permanent_error_is_dead_at_once<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Permanent]));
    assert_eq!(line.run(1).await, ["dead: permanent"]);
    line.publish_redelivered(Order::new("b", &[Act::Fail, Act::Permanent])).await;
    line.runs_to(Settings::default(), &["scheduled 0", "scheduled 1", "dead: permanent"]).await;
    assert_eq!((line.effects("a").await, line.desk.runs("a"), line.dead().await.len()), (0, 1, 2));
}

/// The next attempt is not before the time that the handler names, and the failed one is recorded.
pub async fn an_error_that_names_a_time_is_retried_after_it<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::RetryAfter]));
    line.publish(Order::ok("neighbour"));
    assert_eq!(sorted(line.run(2).await), ["processed", "scheduled 1"]);
    let row = &line.scheduled().await[0];
    let delay = row.run_at.duration_since(row.created_at).unwrap();
    assert!((3599..3700).contains(&delay.as_secs()), "{delay:?}");
    assert_eq!((row.attempts, row.error.as_str(), line.effects("a").await), (1, "not for an hour", 0));

    line.publish(Order::new("b", &[Act::RetryAfter]));
    assert_eq!(line.run_with(Settings::once(), 3).await[2], "dead: exhausted", "no attempt is left");
}

/// A handler swallows a SQL error. If that aborted its transaction, nothing was written, and the attempt fails.
/// Otherwise the statements that worked are committed.
pub async fn a_swallowed_error_is_a_failure<W: World>(world: W) {
    if W::FEATURES.errors_abort {
        return fails_once(world, Act::Swallow, Settings::default(), "swallowed").await;
    }
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Swallow]));
    assert_eq!(line.run(1).await, ["processed"]);
    assert_eq!(line.effects("a").await, 1);
}

/// ROLLBACK: it has no effect, and is given up.
pub async fn a_rollback_by_the_handler_is_dead_without_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    let mut acts = vec![Act::Rollback, Act::RollbackBegin, Act::RollbackWrite];
    if W::FEATURES.errors_abort {
        // Elsewhere the error may have rolled back by itself, and is an ordinary failure.
        acts.push(Act::RollbackWriteFail);
    }
    let all = acts.len();
    for (n, act) in acts.into_iter().enumerate() {
        let id = n.to_string();
        line.publish(Order::new(&id, &[act]));
        assert_eq!(line.run(2 * n + 1).await[2 * n], "dead: rolled back by its handler");
        line.publish(Order::new(&id, &[act]));
        assert_eq!(line.run(2 * n + 2).await[2 * n + 1], "duplicate", "its claim stands");
        assert_eq!((line.effects(&id).await, line.desk.runs(&id)), (0, 1));
    }
    line.publish(Order::ok("after"));
    assert_eq!(line.run(2 * all + 1).await[2 * all], "processed");
}

/// Behind its ROLLBACK, a handler begins a transaction in which a write fails. A transaction that an error has aborted
/// cannot be told from the one that idem began, so this is an ordinary failure.
pub async fn a_rollback_and_begin_before_an_error_is_retried_without_effect<W: World>(world: W) {
    fails_once(world, Act::RollbackBeginFail, Settings::default(), "failed in a transaction of its own").await;
}

/// No matter what a handler does after its ROLLBACK, its neighbours have one effect each and no attempt of theirs is recorded.
pub async fn a_rollback_harms_no_neighbour<W: World>(world: W) {
    let line = Line::new(world).await;
    let acts = [Act::Rollback, Act::RollbackBegin, Act::RollbackWrite];
    for n in 0..30 {
        match n % 10 {
            3 => line.publish(Order::new(&format!("culprit {n}"), &[acts[n / 10]])),
            _ => line.publish(Order::ok(&n.to_string())),
        }
    }
    let outcomes = sorted(line.run(30).await);
    assert_eq!(outcomes[..3], ["dead: rolled back by its handler"; 3]);
    assert!(outcomes[3..].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    for n in 0..30 {
        let id = if n % 10 == 3 { format!("culprit {n}") } else { n.to_string() };
        assert_eq!(line.effects(&id).await, i64::from(n % 10 != 3), "{id}");
    }
}

/// A driver that loses the future of a `begin` rolls back the whole transaction. This is a failure like any other, whose
/// error says so, and harms no neighbour.
pub async fn a_nested_transaction_that_never_began_is_retried_and_harms_no_neighbour<W: World>(world: W) {
    let line = Line::new(world).await;
    for n in 0..20 {
        match n {
            3 => line.publish(Order::new("3", &[Act::Unbegun])),
            13 => line.publish(Order::new("13", &[Act::UnbegunWrite])),
            _ => line.publish(Order::ok(&n.to_string())),
        }
    }
    let once = Settings { retry: RetryPolicy::new().max_attempts(2), ..Settings::default() };
    let outcomes = sorted(line.run_with(once, 22).await);
    assert_eq!(outcomes[..2], ["dead: exhausted"; 2]);
    assert!(outcomes[2..20].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    assert_eq!(outcomes[20..], ["scheduled 1"; 2]);
    for dead in line.dead().await {
        assert!(dead.error.contains("`begin()` of a nested transaction"), "{}", dead.error);
    }
    for n in 0..20 {
        assert_eq!(line.effects(&n.to_string()).await, i64::from(n != 3 && n != 13), "{n}");
    }
}

/// COMMIT: its effect may exist, so the message must not run again by itself, whatever the handler returned. Where
/// COMMIT is refused, there is no effect.
pub async fn a_commit_by_the_handler_is_dead_and_its_effect_stands<W: World>(world: W) {
    let line = Line::new(world).await;
    let acts = [Act::Commit, Act::CommitBegin, Act::CommitFail];
    for (n, act) in acts.into_iter().enumerate() {
        let id = n.to_string();
        line.publish(Order::new(&id, &[act]));
        assert_eq!(line.run(2 * n + 1).await[2 * n], "dead: committed by its handler", "{act:?}");
        line.publish(Order::new(&id, &[act]));
        assert_eq!(line.run(2 * n + 2).await[2 * n + 1], "duplicate", "its claim stands");
        let stands = i64::from(!W::FEATURES.refuses_commit);
        assert_eq!((line.effects(&id).await, line.desk.runs(&id)), (stands, 1), "{act:?}");
    }
    assert_eq!(line.dead().await.len(), acts.len());
}

/// The same from the inbox.
pub async fn a_commit_by_the_handler_in_a_retry_is_dead_as_well<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Fail, Act::Commit]));
    assert_eq!(line.run(2).await, ["scheduled 1", "dead: committed by its handler"]);
    let dead = line.one_dead().await;
    let stands = i64::from(!W::FEATURES.refuses_commit);
    assert_eq!((dead.attempts, line.effects("a").await, line.desk.runs("a")), (2, stands, 2));
    line.publish(Order::new("b", &[Act::Fail, Act::Rollback]));
    assert_eq!(line.run(4).await[2..], ["scheduled 1", "dead: rolled back by its handler"]);
    assert_eq!((line.effects("b").await, line.dead().await.len()), (0, 2));
}

/// Nested transactions are savepoints: they never end the outer transaction.
pub async fn a_nested_transaction_is_allowed<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::new("a", &[Act::Nested]));
    line.runs_to(Settings::default(), &["processed"]).await;
    line.publish_redelivered(Order::new("b", &[Act::Nested])).await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!((line.effects("a").await, line.effects("b").await, line.effects("nested").await), (1, 1, 2));
}

/// A transaction that lost against a concurrent one is retried in place, without a recorded attempt.
pub async fn a_lost_race_is_retried_in_place<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.lost_race.is_some(), world).await else { return };
    line.publish(Order::new("a", &[Act::LostRace, Act::LostRace, Act::Ok]));
    assert_eq!(line.run(1).await, ["processed"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 3));
    line.publish_redelivered(Order::new("b", &[Act::LostRace, Act::LostRace, Act::Ok])).await;
    line.runs_to(Settings::default(), &["scheduled 0", "processed"]).await;
    assert_eq!((line.effects("b").await, line.desk.runs("b")), (1, 3));
}

/// The number of retries is limited.
pub async fn lost_races_without_end_are_a_failure<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.lost_race.is_some(), world).await else { return };
    let mut acts = vec![Act::LostRace; 6];
    acts.push(Act::Ok);
    line.publish(Order::new("a", &acts));
    assert_eq!(line.run(2).await, ["scheduled 1", "processed"]);
    assert_eq!((line.effects("a").await, line.desk.runs("a")), (1, 7));
}

/// A message that breaks its own connection, whatever it returns then: no attempt is recorded, it runs alone, and after ten
/// breaks it is dead. Other messages go on meanwhile.
pub async fn a_message_that_breaks_its_connection_is_given_up_and_others_go_on<W: World>(world: W) {
    let Some(line) = Line::new_if(W::FEATURES.terminate_backend.is_some(), world).await else { return };
    let quietly = if line.world.batch() == 1 && !W::NATURAL { Act::TerminateBackendOk } else { Act::TerminateBackend };
    line.publish(Order::new("breaker", &[Act::TerminateBackend, quietly].repeat(6)));
    let worker = line.start();
    soon(line.queue.settled(1)).await;
    let inbox = line.world.own("inbox_messages");
    let earlier = W::earlier("created_at", Duration::from_secs(1));
    let hurry = format!(
        "UPDATE {inbox} SET run_at = {earlier} WHERE locked_by IS NULL AND lost_connections > 0 AND state = 'scheduled'"
    );
    let mut others = 0;
    while line.dead().await.is_empty() {
        let id = format!("other-{others}");
        line.publish(Order::ok(&id));
        others += 1;
        line.world.run(&hurry).await;
        soon(line.queue.settled(others + 1)).await;
    }
    soon(line.queue.idle()).await;
    // A settled message may only be stored.
    until(async || line.scheduled().await.is_empty()).await;
    worker.stop().await;
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.attempts, dead.lost_connections), (Some(Reason::BrokeConnection), 0, 10));
    assert_eq!(line.effects("breaker").await, 0);
    for other in 0..others {
        assert_eq!(line.effects(&format!("other-{other}")).await, 1);
    }
}

/// The messages of a batch whose handlers fail run again singly, one after another on the connection of their lane.
pub async fn the_messages_of_a_failing_batch_run_one_after_another<W: World>(world: W) {
    let line = Line::new(world).await;
    let ids = ["a", "b", "c", "d"];
    ids.iter().for_each(|id| line.publish(Order::new(id, &[Act::SlowFail])));
    // Nothing runs again from the inbox meanwhile.
    let linger = Duration::from_millis(300);
    let outcomes = line.run_with(Settings { concurrency: 1, linger, ..Settings::late() }, 4).await;
    assert_eq!(outcomes, ["scheduled 1"; 4]);
    let runs: usize = ids.iter().map(|id| line.desk.runs(id)).sum();
    assert!(runs > 4, "they did not run in a batch first");
    assert_eq!(line.desk.most_at_once(), 1);
}
