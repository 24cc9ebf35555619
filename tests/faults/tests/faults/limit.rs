//! Queues that drop a message at its 21st return, as each queue of RabbitMQ 4 does unless its limit is lifted. idem refuses
//! them. Here it is told that there is no limit, so that what the limit would take shows.

use idem_faults::{Act, Mode, Order, Process, RabbitMq, Setting, Site, limited, orders, until};

use crate::raw::Raw;

/// The server's limit, and the messages behind the first one.
const LIMIT: u8 = 20;
const BEHIND: usize = 15;

#[tokio::test(flavor = "multi_thread")]
async fn loses_no_message_of_an_ordered_worker_that_is_killed_again_and_again() {
    loses_nothing(Process::kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn loses_no_message_of_an_ordered_worker_that_is_stopped_again_and_again() {
    loses_nothing(Process::interrupt).await;
}

/// The first message has failed and is scheduled for later, so that none of the others has its turn.
async fn loses_nothing(end: impl AsyncFn(Process)) {
    crate::everywhere::run::<RabbitMq>(Mode::Order, async |scene| {
        assert!(scene.site.forget().await);
        Raw::connect(&scene.site.address).await.declare_limited(&scene.site.name, LIMIT).await;
        let all: Vec<_> =
            [Order::new("first", Act::FailUntilOpen)].into_iter().chain(orders("behind", BEHIND, Act::Write)).collect();
        scene.publish(&all).await;
        for returned in 1..=LIMIT + 1 {
            let mut process =
                Process::start(env!("CARGO_BIN_EXE_worker"), &Setting::of(&scene.world, &scene.site, scene.mode));
            // RabbitMQ does not count what a consumer holds.
            until("the process has all messages", || async { scene.site.left().await == 0 }).await;
            process.runs();
            if returned > 1 {
                // Messages that come again are stored. A busy machine needs some time for it, in each of the processes.
                until("all messages are stored", || async { scene.stored().await == all.len() as i64 }).await;
            }
            end(process).await;
            if returned <= LIMIT {
                until("all messages are back", || async { scene.site.left().await == all.len() as u64 }).await;
            }
        }
        assert_eq!(scene.site.left().await, 0, "the queue has dropped all messages");
        assert!(scene.world.all_effects().await.is_empty());

        // The times at which they would run without the queue.
        let due = scene.world.stage.sql("UPDATE {schema}.inbox_messages SET due_at = now()");
        sqlx::query(due).execute(&scene.world.pool).await.unwrap();
        scene.world.stage.open();
        let source = limited(&scene.site.address, &scene.site.name).await.unwrap();
        let worker = scene.start_from(source, |worker| worker);
        let dead = scene.ends_with(all, vec![worker]).await;
        assert!(dead.is_empty(), "{dead:?}");
    })
    .await;
}
