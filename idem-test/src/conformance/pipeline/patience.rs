//! How long a suspect keeps other rows from starting.

use std::time::Duration;

use idem_core::Key;
use idem_core::store::{Filter, Operator, Page};

use crate::conformance::soon;
use crate::conformance::store::World;

use super::crashes::{schedule, suspect_for};
use super::line::Line;
use super::orders::{Act, Order};

/// A row runs for long. After a lease, the suspect that waits for its end lets other rows start, is not charged, and
/// gets its turn later.
pub async fn a_suspect_that_waits_for_long_lets_other_rows_start<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        // The running message has the only writer.
        return;
    }
    let line = Line::new(world).await;
    let hour = Duration::from_secs(3600);
    let left = suspect_for(&line, 1, hour).await;
    schedule(&line, "billing", Order::new("running", &[Act::Wait])).await;
    let worker = line.start();
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let filter = Filter::new().scheduled();
    let row = async || {
        let rows = line.store.list("billing", &filter, Page::default()).await.unwrap();
        rows.into_iter().find(|row| row.identity.key == Key::of("suspect").unwrap()).unwrap()
    };
    // Due only now that the other message runs.
    let (table, due, id) = (line.world.own("inbox_messages"), W::earlier("due_at", hour), row().await.id);
    line.world.run(&format!("UPDATE {table} SET due_at = {due} WHERE id = {id}")).await;
    soon(async {
        while row().await.token == left {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    schedule(&line, "billing", Order::ok("other")).await;
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert_eq!((line.effects("other").await, line.desk.runs("suspect"), row().await.starts), (1, 0, 1));
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(3).await, ["processed"; 3]);
    worker.stop().await;
    assert_eq!((line.effects("suspect").await, line.desk.runs("suspect")), (1, 1));
}
