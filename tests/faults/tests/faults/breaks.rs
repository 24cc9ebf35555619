//! A message whose handler ends its own database connection.

use idem::store::MAX_BREAKS;
use idem::{Outcome, Reason};
use idem_faults::{Act, Order, World, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_breaks_its_connection_dies_while_others_go_on() {
    others_go_on_beside(Act::Break).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_breaks_its_connection_quietly_dies_while_others_go_on() {
    others_go_on_beside(Act::BreakQuietly).await;
}

async fn others_go_on_beside(act: Act) {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let worker = world.start(&store, world.broker.queue("orders"), |worker| worker);
    world.publish(&Order::new("breaker", act));

    let mut others = 0;
    // After each broken connection, others are published and have their effects before it continues.
    for breaks in 1..MAX_BREAKS {
        until("it breaks once more", || async {
            world.rows(&store).await.iter().any(|row| row.lost_connections >= breaks && row.locked_by.is_none())
        })
        .await;
        for _ in 0..5 {
            world.publish(&Order::new(format!("other-{others}"), Act::Write));
            others += 1;
        }
        world.journal.processed(others).await;
        let row = world.row(&store).await;
        assert_eq!((row.reason, row.attempts), (None, 0), "it still waits, and was charged nothing");
        // Its delay is cut short: ten breaks would take half a minute or more.
        let due =
            "UPDATE {schema}.inbox_messages SET run_at = now() WHERE lost_connections >= $1 AND locked_by IS NULL";
        sqlx::query(world.stage.sql(due)).bind(breaks as i32).execute(&world.pool).await.unwrap();
    }
    assert_eq!(world.journal.end_of("breaker").await, Outcome::dead(Reason::BrokeConnection));

    let row = world.row(&store).await;
    assert_eq!((row.reason, row.attempts, row.lost_connections), (Some(Reason::BrokeConnection), 0, MAX_BREAKS));
    // The first run, before there was a row, and ten runs of the row.
    assert_eq!(world.stage.attempts("breaker"), [1; 11]);
    let mut expected: Vec<_> = (0..others).map(|n| (format!("other-{n}"), 1)).collect();
    expected.sort();
    assert_eq!(world.all_effects().await, expected);
    until("the database is known to be well", || async { worker.health.database() }).await;
    world.broker.idle().await;
    assert_eq!(world.broker.queue("orders").counts().redeliveries, 0);
    worker.stop().await.unwrap();
    assert!(world.stage.runs().iter().all(|run| run.attempt == 1));
    world.end().await;
}
