//! Workers and connections that vanish, at every bad moment.

use idem::Outcome;
use idem_faults::{Act, Broker, Mode, Scene, Stage, Unacked, orders, until, within};

use crate::everywhere::on_servers;

on_servers! {
    messages_in_hand_at_a_crash_are_processed_by_another_worker
    a_message_committed_but_not_acked_at_a_crash_is_a_duplicate
    connections_that_are_cut_in_the_middle_of_work_lose_nothing_and_double_nothing
    a_dead_letter_without_a_key_that_comes_again_is_the_same_one
}

async fn messages_in_hand_at_a_crash_are_processed_by_another_worker<B: Broker>(scene: &Scene<B>) {
    let crashing = scene.start_warm().await;
    // The messages behind them finish first, and must not settle them.
    let orders = [orders("held", 8, Act::Hold), orders("behind", 8, Act::Write)].concat();
    scene.publish(&orders).await;
    if scene.mode == Mode::Batch {
        // Which of them are in a batch with a waiting one, and so behind it, is not known.
        let held = |stage: &Stage| stage.runs().iter().any(|run| run.id.starts_with("held"));
        until("one waits", || async { held(&scene.world.stage) }).await;
    } else {
        scene.entered(16).await;
        scene.effects(8).await;
    }
    assert_eq!(scene.stored().await, if scene.mode == Mode::Inbox { 8 } else { 0 });
    // The other worker is already running, and takes part.
    let other = scene.start().await;
    let before = scene.runs();
    crashing.crash().await;
    // Once the other worker runs a message again, the crashed worker's run is certainly gone.
    scene.entered(before + 1).await;
    scene.world.stage.open();
    let dead = scene.ends_with(orders, vec![other]).await;
    assert!(dead.is_empty(), "{dead:?}");
}

async fn a_message_committed_but_not_acked_at_a_crash_is_a_duplicate<B: Broker>(scene: &Scene<B>) {
    let (source, asked) = Unacked::new(scene.site.source().await);
    // A lane for each, since on a busy machine each may be a separate batch.
    let crashing = scene.start_from(source, |worker| worker.concurrency(16));
    scene.warm_up().await;
    asked.keep();
    let orders = orders("unacked", 8, Act::Write);
    scene.publish(&orders).await;
    // None waits for the ack of another.
    within("each has come to its ack", asked.reached(8)).await;
    if scene.mode != Mode::Inbox {
        scene.effects(8).await;
    }
    crashing.crash().await;

    let other = scene.start().await;
    let duplicates = |outcome: &Outcome| *outcome == Outcome::Duplicate;
    scene.world.journal.until("all come again", |journal| journal.count(duplicates) >= 8).await;
    let dead = scene.ends_with(orders, vec![other]).await;
    assert!(dead.is_empty(), "{dead:?}");
}

async fn connections_that_are_cut_in_the_middle_of_work_lose_nothing_and_double_nothing<B: Broker>(scene: &Scene<B>) {
    let worker = scene.start_warm().await;
    let held = orders("held", 16, Act::Hold);
    scene.publish(&held).await;
    scene.entered(scene.mode.at_once(16)).await;
    scene.site.cut();
    let more = orders("later", 16, Act::Write);
    scene.publish(&more).await;
    // Acks from before the cut do not settle deliveries from after it.
    scene.world.stage.open();
    scene.effects(32).await;
    scene.site.cut();
    let last = orders("last", 16, Act::Write);
    scene.publish(&last).await;
    let dead = scene.ends_with([held, more, last].concat(), vec![worker]).await;
    assert!(dead.is_empty(), "{dead:?}");
}

async fn a_dead_letter_without_a_key_that_comes_again_is_the_same_one<B: Broker>(scene: &Scene<B>) {
    let (source, asked) = Unacked::new(scene.site.source().await);
    let crashing = scene.start_from(source, |worker| worker);
    scene.warm_up().await;
    asked.keep();
    scene.site.publish(&[b"no JSON".to_vec()]).await;
    within("it is dead, and not acked", asked.reached(1)).await;
    crashing.crash().await;
    let other = scene.start().await;
    let dead = |outcome: &Outcome| matches!(outcome, Outcome::Dead { .. });
    scene.world.journal.until("it comes again", |journal| journal.count(dead) >= 1).await;
    // The counters in the broker's headers do not make it another message.
    let dead = scene.ends_with([], vec![other]).await;
    assert_eq!(dead.iter().map(|row| row.deliveries).collect::<Vec<_>>(), [2], "{dead:?}");
}
