//! An orphaned row, and several processes that could run it.

use std::time::Duration;

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::Publication;

use super::crashes::orphan_for;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// The queue of each process.
const QUEUES: [&str; 2] = ["orders", "elsewhere"];

/// How many messages the process that goes on handles meanwhile.
const MORE: usize = 5;

/// Waits until a handler runs one of these messages, and returns it.
async fn runs<'a, W: World>(line: &Line<W>, ids: &[&'a str]) -> &'a str {
    soon(async {
        loop {
            if let Some(id) = ids.iter().find(|id| line.desk.runs(id) > 0) {
                return *id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

/// Two processes find an orphaned row that has its process to itself. The one that runs it goes quiet, and the other one goes
/// on.
pub async fn one_process_of_two_goes_quiet_for_an_orphan<W: World>(world: W) {
    // Otherwise the orphaned row has the only writer.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    orphan_for(&line, 2, Duration::ZERO).await;
    let workers = [line.start(), line.start_at(line.broker.queue(QUEUES[1]), Settings::default())];
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let publish = |queue: &str, id: &str| {
        line.broker.publish(queue, Publication::from(Order::ok(id)).event_type("Order"));
    };
    QUEUES.iter().for_each(|queue| publish(queue, queue));
    let first = runs(&line, &QUEUES).await;
    // There is no signal that the other message will not start. If it is not held back, it starts while the first
    // process handles some more.
    for n in 0..MORE {
        let id = n.to_string();
        publish(first, &id);
        runs(&line, &[&id]).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let run: usize = QUEUES.iter().map(|id| line.desk.runs(id)).sum();
    assert_eq!((run, line.desk.runs("orphan")), (1, 1));
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(3 + MORE).await, ["processed"; 3 + MORE]);
    for worker in workers {
        worker.stop().await;
    }
}
