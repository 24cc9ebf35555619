//! How far back a worker looks for due rows. The database may have to skip all rows that were fetched since the oldest of
//! its open snapshots.

use std::time::Duration;

use idem_core::store::Consumers;
use idem_core::{Delivery, Worker};
use tokio::sync::watch;

use idem_conformance::soon;
use idem_conformance::store::World;
use idem_test::tapped_store::{Over, StoreTap, TappedStore};

use super::crashes::{schedule, schedule_later};
use super::line::Line;
use super::orders::{Order, Orders};
use super::settings::Settings;

/// The searches of a store, with how far back each of them looked; `None`: at everything.
#[derive(Clone, Default)]
struct Searches(watch::Sender<Vec<Search>>);

type Search = (&'static str, Option<Duration>);

impl StoreTap for Searches {
    fn looks_back(&self, search: &'static str, since: Option<Duration>) {
        self.0.send_modify(|made| made.push((search, since)));
    }
}

impl Searches {
    /// Waits until enough searches of this kind were made, and returns how far back each of them looked.
    async fn until(&self, kind: &str, is_enough: impl Fn(&[Option<Duration>]) -> bool) -> Vec<Option<Duration>> {
        let mut made = self.0.subscribe();
        let all = soon(made.wait_for(|made| is_enough(&of(made, kind)))).await.unwrap();
        of(&all, kind)
    }
}

fn of(made: &[Search], kind: &str) -> Vec<Option<Duration>> {
    made.iter().filter(|(search, _)| *search == kind).map(|(_, since)| *since).collect()
}

/// How many of these looked at everything.
fn unbounded(searches: &[Option<Duration>]) -> usize {
    searches.iter().filter(|since| since.is_none()).count()
}

const HOUR: Duration = Duration::from_secs(3600);

/// Rows that were due long ago, more than there are slots: a bound that forgets those that a fetch has left behind would
/// make them wait until everything is looked at.
pub async fn a_worker_fetches_the_rows_that_its_last_fetch_has_left_without_a_search_of_everything<W: World>(world: W) {
    let (line, searches) = (Line::new(world).await, Searches::default());
    for n in 0..6 {
        schedule(&line, "billing", Order::ok(&format!("row {n}"))).await;
    }
    let (table, due) = (line.world.own("inbox_messages"), W::due_earlier(HOUR));
    line.world.run(&format!("UPDATE {table} SET {due}")).await;
    let store = TappedStore::new(line.store.clone(), searches.clone());
    let worker = Worker::new("billing", store, line.queue.clone()).state(line.desk.clone());
    let worker = line.run_until_stopped(worker.handler::<Over<Orders<W>, W::Store, Searches>>(), Settings::default());
    line.outcomes(6).await;
    // Two slots: these three have found the six rows.
    let fetches = searches.until("fetch of rows", |fetches| fetches.len() >= 3).await;
    assert!(fetches[..3].iter().flatten().all(|since| *since >= HOUR), "{fetches:?}");
    worker.stop().await;
}

const POLLS: [&str; 2] = ["poll for rows", "poll for orphaned rows"];

/// Three rows and three orphaned rows come one after another, so that not all of them come just when everything is looked at.
pub async fn a_worker_looks_back_to_its_last_search_and_at_times_at_everything<W: World>(world: W) {
    let (line, searches) = (Line::new(world).await, Searches::default());
    let store = TappedStore::new(line.store.clone(), searches.clone());
    let worker = Worker::new("billing", store, line.queue.clone()).state(line.desk.clone());
    let worker = line.run_until_stopped(worker.handler::<Over<Orders<W>, W::Store, Searches>>(), Settings::default());
    for kind in POLLS {
        let polls = searches.until(kind, |polls| polls.len() >= 3).await;
        assert_eq!(polls[0], None, "{kind}: nothing is known at the start");
        assert!(polls.iter().flatten().all(|since| *since < Duration::from_secs(10)), "{kind}: {polls:?}");
        assert!(unbounded(&polls) < polls.len(), "{kind}: {polls:?}");
    }
    for n in 0..3 {
        schedule(&line, "billing", Order::ok(&format!("row {n}"))).await;
        line.outcomes(n + 1).await;
    }
    let handler = line.store.register("billing", &["", "orders"]).await.unwrap()[1];
    for n in 0..3 {
        let id = format!("orphan {n}");
        let delivery = Delivery::new("orders", serde_json::to_vec(&Order::ok(&id)).unwrap());
        schedule_later(&line, handler, &id, delivery, Duration::from_secs(1)).await;
        line.world.run(&format!("UPDATE {} SET crash_count = 1", line.world.own("inbox_messages"))).await;
        line.outcomes(4 + n).await;
    }
    for kind in ["fetch of rows", "fetch of an orphaned row"] {
        let fetches = searches.until(kind, |fetches| fetches.len() >= 3).await;
        assert!(unbounded(&fetches) < fetches.len(), "{kind}: {fetches:?}");
    }
    for kind in POLLS {
        searches.until(kind, |polls| unbounded(polls) >= 2).await;
    }
    worker.stop().await;
}
