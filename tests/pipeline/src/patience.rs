//! How long an orphaned row keeps other rows from starting, and that it keeps out one process of two.

use std::time::Duration;

use idem_core::operator::{Filter, Page};
use idem_core::{IsolationLock, Key};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::{soon, until};
use idem_test::Publication;

use super::crashes::{orphan_for, schedule};
use super::faulty::Do;
use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// A row runs for long. After a lease, the orphaned row that waits for its end lets other rows start, counts no start, and
/// gets its turn later.
pub async fn an_orphan_that_waits_for_long_lets_other_rows_start<W: World>(world: W) {
    // Otherwise the running message has the only writer.
    let Some(line) = Line::new_if(W::FEATURES.concurrent, world).await else { return };
    let hour = Duration::from_secs(3600);
    let gate = IsolationLock::new();
    orphan_for(&line, 1, hour).await;
    schedule(&line, "billing", Order::new("running", &[Act::Wait])).await;
    let worker = line.start_with(Settings { gate: Some(gate.clone()), ..Settings::default() });
    soon(line.desk.waiting.subscribe().wait_for(|waiting| *waiting == 1)).await.unwrap();
    let filter = Filter::new().scheduled();
    let row = async || {
        let rows = line.operator().list(&filter, Page::default()).await.unwrap().rows;
        rows.into_iter().find(|row| row.identity.key == Key::of("orphan").unwrap()).unwrap()
    };
    // Due only now that the other message runs.
    let (table, due, id) = (line.world.own("inbox_messages"), W::due_earlier(hour), row().await.id);
    line.world.run(&format!("UPDATE {table} SET {due} WHERE id = {id}")).await;
    until(async || gate.keeps_out_rows()).await;
    schedule(&line, "billing", Order::ok("other")).await;
    assert_eq!(line.outcomes(1).await, ["processed"]);
    assert_eq!((line.effects("other").await, line.desk.runs("orphan"), row().await.crash_count), (1, 0, 1));
    line.desk.go.send_replace(true);
    assert_eq!(line.outcomes(3).await, ["processed"; 3]);
    worker.stop().await;
    assert_eq!((line.effects("orphan").await, line.desk.runs("orphan")), (1, 1));
}

/// It checks whether it is still due, and the database does not answer.
pub async fn an_orphan_whose_check_hangs_waits_no_longer_than_the_drain<W: World>(world: W) {
    let (line, gate) = (Line::new(world).await, IsolationLock::new());
    // Due only when the other message runs.
    orphan_for(&line, 1, Duration::from_secs(3)).await;
    schedule(&line, "billing", Order::new("running", &[Act::Wait])).await;
    let (checks, open) = (watch::Sender::new(false), watch::Sender::new(false));
    let (signal, waits, opened) = (checks.clone(), gate.clone(), open.subscribe());
    let hook = move |method: &'static str, _: &[u8]| {
        if method != "poll_due" || !waits.keeps_out_rows() {
            return Do::Work;
        }
        signal.send_replace(true);
        Do::Wait(opened.clone())
    };
    let worker = line.start_over(hook, Settings { gate: Some(gate.clone()), ..Settings::default() });
    soon(checks.subscribe().wait_for(|checks| *checks)).await.unwrap();
    let stopping = tokio::spawn(worker.stop());
    until(async || !gate.keeps_out_rows()).await;
    assert_eq!(line.desk.runs("orphan"), 0);
    open.send_replace(true);
    line.desk.go.send_replace(true);
    stopping.await.unwrap();
}

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
