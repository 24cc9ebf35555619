//! The lives of messages: copies, failures, crashes at each point, conflicts, an operator.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use idem_conformance::store::{Setup, World};
use idem_core::operator::{Filter, Page};
use idem_core::store::{Replayed, Row};
use idem_core::{Key, Reason};
use idem_test::trace::Trace;
use idem_test::{Crash, Trial};

use super::orders::{Act, Desk, Order, Orders};

/// How the workers run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) inbox: bool,
    pub(crate) batch: usize,
}

/// Real workers, their broker, their database and their trace.
struct Life<W: World> {
    world: Arc<W>,
    trial: Trial<W::Store>,
    desk: Desk,
    trace: Trace,
}

impl<W: World> Life<W> {
    async fn new(world: W, mode: Mode) -> Self {
        let effects = world.name("effects");
        world.run(&format!("CREATE TABLE {effects} (name VARCHAR(300) NOT NULL)")).await;
        let (world, desk, trace) = (Arc::new(world), Desk::new(effects), Trace::new());
        let connected = world.clone();
        let connect = move || {
            let world = connected.clone();
            async move { world.store(Setup::default()).await }
        };
        let bench = Trial::new(connect).state(desk.clone()).batch(mode.batch).trace(&trace);
        let bench = if mode.inbox { bench.inbox() } else { bench };
        let trial = bench.handler::<Orders<W>>().await.unwrap();
        Self { world, trial, desk, trace }
    }

    /// Copies of a message, delivered in different ways, without a crash and with one at each point.
    async fn copies(&self, crashes: &[Option<Crash>]) {
        for crash in crashes {
            for acts in [&[Act::Ok][..], &[Act::Fail, Act::Ok]] {
                for (copies, processes) in [(1, 1), (3, 1), (4, 2)] {
                    let id = format!("{crash:?} {} {copies} {processes}", acts.len());
                    let sending = self.trial.deliver(Order::new(&id, acts)).processes(processes);
                    let sending = match crash {
                        Some(crash) => sending.crash(*crash),
                        None => sending,
                    };
                    sending.at_once(copies).await.unwrap_or_else(|error| panic!("{id}: {error}"));
                }
            }
        }
    }

    /// Messages of different keys at once, some of which fail.
    async fn together(&self) {
        for number in 0..12 {
            let acts: &[Act] = if number % 4 == 3 { &[Act::Fail, Act::Ok] } else { &[Act::Ok] };
            self.publish(&Order::new(&format!("together {number}"), acts));
        }
        self.trial.run().await.unwrap();
    }

    /// Handlers that lose a race or break their connection, where the database knows that.
    async fn races(&self) {
        let features = W::FEATURES;
        for (id, act, known) in
            [("race", Act::LoseRace, features.lost_race), ("break", Act::Break, features.terminate_backend)]
        {
            if known.is_some() {
                self.trial.deliver(Order::new(id, &[act])).times(2).await.unwrap();
            }
        }
    }

    /// A conflict, which is discarded.
    async fn conflict(&self) {
        let order = Order::new("conflict", &[Act::Fail, Act::Ok]);
        self.trial.deliver(order.clone()).once().await.unwrap();
        self.trial.deliver(order.other()).times(2).await.unwrap();
        let dead = self.dead("conflict").await;
        assert_eq!(self.trace.replay(self.trial.operator(), &dead).await.unwrap(), Replayed::NeedsKey);
        assert!(self.trace.discard(self.trial.operator(), &dead).await.unwrap());
    }

    /// Messages that fail for good: one is replayed when its cause is gone, the other one is discarded, and copies come.
    async fn operator(&self) {
        for id in ["replayed", "discarded"] {
            self.trial.deliver(Order::new(id, &[Act::Fail, Act::Permanent])).times(2).await.unwrap();
        }
        let (replayed, discarded) = (self.dead("replayed").await, self.dead("discarded").await);
        self.desk.repaired.store(true, SeqCst);
        assert_eq!(self.trace.replay(self.trial.operator(), &replayed).await.unwrap(), Replayed::Due);
        assert!(self.trace.discard(self.trial.operator(), &discarded).await.unwrap());
        assert!(!self.trace.discard(self.trial.operator(), &discarded).await.unwrap());
        for id in ["replayed", "discarded"] {
            self.trial.deliver(Order::new(id, &[Act::Fail, Act::Permanent])).once().await.unwrap();
        }
        self.desk.repaired.store(false, SeqCst);
    }

    /// A message that ends its process until it is dead, and is replayed.
    async fn killer(&self, mode: Mode) {
        self.publish(&Order::new("killer", &[Act::Ok]));
        // The first run is a direct one, if there are any.
        for _ in 0..if mode.inbox { 4 } else { 5 } {
            self.trial.run_into(Crash::InHandler).await.unwrap();
        }
        self.trial.run().await.unwrap();
        let dead = self.dead("killer").await;
        assert_eq!((dead.reason, dead.crash_count), (Some(Reason::Crashed), 4));
        assert_eq!(self.trace.replay(self.trial.operator(), &dead).await.unwrap(), Replayed::Due);
        self.trial.run().await.unwrap();
    }

    fn publish(&self, order: &Order) {
        self.trial.broker().publish("trial", order.clone());
    }

    async fn dead(&self, id: &str) -> Row {
        self.found(id, Filter::default()).await.unwrap_or_else(|| panic!("{id} is not dead"))
    }

    async fn found(&self, id: &str, filter: Filter) -> Option<Row> {
        let rows = self.trial.operator().list(&filter, Page::new(1000)).await.unwrap().rows;
        let key = Key::of(id).unwrap();
        rows.into_iter().find(|row| row.identity.key == key)
    }

    /// Writes what is left of these messages, and returns the trace.
    async fn end(self, ids: &[&str]) -> String {
        for id in ids.iter().copied() {
            let (scheduled, dead) = (Filter::new().scheduled(), Filter::default());
            let row = match (self.found(id, scheduled).await, self.found(id, dead).await) {
                (Some(_), _) => "scheduled",
                (_, Some(_)) => "dead",
                _ => "none",
            };
            let (all, dated) = (self.claims(id, "").await, self.claims(id, "AND processed_at IS NOT NULL").await);
            let claim = match (all, dated) {
                (0, _) => "none",
                (_, 0) => "undated",
                _ => "dated",
            };
            self.trace.left(&Key::of(id).unwrap(), row, claim);
        }
        self.trace.text()
    }

    /// How many claims there are of this key.
    async fn claims(&self, id: &str, more: &str) -> i64 {
        // The worlds are those of two databases, of which one writes one transaction at a time.
        let key = if W::FEATURES.concurrent {
            format!("convert_to('{id}', 'UTF8')")
        } else {
            format!("CAST('{id}' AS BLOB)")
        };
        let claims = self.world.own("processed_messages");
        self.world.number(&format!("SELECT count(*) FROM {claims} WHERE key = {key} {more}")).await
    }
}

/// The trace of workers in this mode.
pub(crate) async fn lives<W: World>(world: W, mode: Mode) -> String {
    let life = Life::new(world, mode).await;
    life.copies(&[None]).await;
    life.copies(&Crash::ALL.iter().copied().map(Some).collect::<Vec<_>>()).await;
    life.together().await;
    life.races().await;
    life.conflict().await;
    life.operator().await;
    life.killer(mode).await;
    life.end(&["conflict", "replayed", "discarded", "killer", "together 0", "together 3"]).await
}

/// A short trace, for changes.
pub(crate) async fn short<W: World>(world: W) -> String {
    let life = Life::new(world, Mode { inbox: false, batch: 1 }).await;
    for acts in [&[Act::Ok][..], &[Act::Fail, Act::Ok]] {
        life.trial.deliver(Order::new(&format!("short {}", acts.len()), acts)).times(2).await.unwrap();
    }
    let crashed = life.trial.deliver(Order::new("crash", &[Act::Ok])).crash(Crash::BeforeCommit);
    crashed.once().await.unwrap();
    life.operator().await;
    life.end(&["short 1", "short 2", "crash", "replayed", "discarded"]).await
}
