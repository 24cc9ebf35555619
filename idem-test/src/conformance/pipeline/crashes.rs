//! Processes that end without a word.

use std::sync::Arc;

use idem_core::{Lends, Reason, State};

use crate::conformance::soon;
use crate::conformance::store::Setup;
use crate::harness::{Crash, Trial};

use super::line::Line;
use super::orders::{Act, Desk, Orders};
use super::{Order, World};

/// A trial of the suite's handler, each process with a store of its own.
async fn trial<W: World>(world: Arc<W>, desk: Desk) -> Trial<W::Store>
where
    W::Store: Lends<W::Connection>,
{
    let connect = move || {
        let world = world.clone();
        async move { world.store(Setup::default()).await }
    };
    let _ = State(());
    Trial::new(connect).state(desk).handler::<Orders<W>>().await.unwrap()
}

fn order(order: Order) -> crate::Publication {
    crate::Publication::from(order).event_type("Order")
}

/// Once, ten times, five at once, in two processes, and with a crash at each point: one effect.
pub async fn every_way_to_deliver_has_one_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    for (copies, in_flight, processes) in [(1, 1, 1), (10, 1, 1), (5, 5, 1), (6, 3, 2)] {
        for crash in [None].into_iter().chain(Crash::ALL.map(Some)) {
            for acts in [&[Act::Ok][..], &[Act::Fail, Act::Ok]] {
                let fails = acts[0] == Act::Fail;
                // What fails comes to the points of a commit as well: those of what parks it.
                let id = format!("{copies} {in_flight} {processes} {crash:?} {fails}");
                let sending = trial.deliver(order(Order::new(&id, acts))).processes(processes);
                let sending = match crash {
                    Some(crash) => sending.crash(crash),
                    None => sending,
                };
                // Another process may be faster everywhere, so that the first one never comes to its point.
                match sending.run(copies, in_flight).await {
                    Err(error) if processes > 1 && error.to_string().contains("never reached") => {}
                    outcomes => drop(outcomes.unwrap_or_else(|error| panic!("{id}: {error}"))),
                }
                assert_eq!(line.effects(&id).await, 1, "{id}");
                assert!(line.dead().await.is_empty());
            }
        }
    }
}

/// Each time that it runs its process ends. The first time it was delivered directly, and then three times it was begun
/// from the inbox, the last two times alone.
pub async fn a_message_that_kills_its_process_is_dead_as_crashed<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    trial.publish(&order(Order::ok("killer")));
    for _ in 0..4 {
        let process = trial.start(Some(Crash::InHandler), 4).unwrap();
        soon(process.fate.sealed()).await;
        drop(process);
    }
    trial.publish(&order(Order::ok("innocent")));
    trial.run().await.unwrap();
    let dead = trial.dead_letters().await.unwrap();
    assert_eq!((dead.len(), dead[0].reason, dead[0].starts), (1, Some(Reason::Crashed), 3));
    assert_eq!((line.effects("killer").await, line.effects("innocent").await), (0, 1));
}

/// A process that ends while it runs a row: the row is found again after its lease, and runs once.
pub async fn a_crash_while_a_row_runs_has_one_effect<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    for point in [Crash::InHandler, Crash::BeforeCommit, Crash::AfterCommit] {
        let id = format!("{point:?}");
        // The first attempt fails, in a process that lives; the second one ends its process.
        trial.publish(&order(Order::new(&id, &[Act::Fail, Act::Ok])));
        let process = trial.start(Some(point), 1).unwrap();
        soon(process.fate.sealed()).await;
        drop(process);
        let process = trial.start(Some(point), 1).unwrap();
        let fate = process.fate.clone();
        // A crash behind the commit may have left nothing to do.
        tokio::select! {
            () = fate.sealed() => {}
            done = trial.done() => done.unwrap(),
        }
        drop(process);
        trial.run().await.unwrap();
        assert_eq!(line.effects(&id).await, 1, "{id}");
        assert!(trial.dead_letters().await.unwrap().is_empty());
    }
}
