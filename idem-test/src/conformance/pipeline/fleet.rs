//! A suspect, and several processes that could run it.

use std::time::Duration;

use crate::Publication;
use crate::conformance::soon;
use crate::conformance::store::World;

use super::crashes::suspect_for;
use super::line::Line;
use super::orders::Order;
use super::settings::Settings;

/// Two processes find a suspect that has its process to itself. The one that runs it goes quiet, and the other one goes
/// on.
pub async fn one_process_of_two_goes_quiet_for_a_suspect<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        // The suspect has the only writer.
        return;
    }
    let line = Line::new(world).await;
    suspect_for(&line, 2, Duration::ZERO).await;
    let workers = [line.start(), line.start_at(line.broker.queue("elsewhere"), Settings::default())];
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    line.publish(Order::ok("here"));
    line.broker.publish("elsewhere", Publication::from(Order::ok("there")).event_type("Order"));
    let run = || line.desk.runs("here") + line.desk.runs("there");
    soon(async {
        while run() == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // There is no signal that the other message will not start. If it is not held back, it has started by then.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!((run(), line.desk.runs("suspect")), (1, 1));
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(3).await, ["processed"; 3]);
    for worker in workers {
        worker.stop().await;
    }
}
