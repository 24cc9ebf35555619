//! Handlers that pay first: requests and answers that are lost, a process that is killed in a call, questions, an operator.

use std::sync::Arc;
use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::Key;
use idem_core::operator::{Filter, Page};
use idem_core::store::{Resolution, Row};
use idem_test::provider::Fault;
use idem_test::trace::Trace;
use idem_test::{Crash, Publication, Trial};

use super::payments::{Bill, Pays, Till};

/// Workers that pay, their database and their trace.
struct Paying<W: World> {
    world: Arc<W>,
    trial: Trial<W::Store>,
    till: Till,
    trace: Trace,
}

impl<W: World> Paying<W> {
    async fn new<const KEYED: bool>(world: W) -> Self {
        let effects = world.name("effects");
        world.run(&format!("CREATE TABLE {effects} (name VARCHAR(300) NOT NULL)")).await;
        let (world, till, trace) = (Arc::new(world), Till::new(effects), Trace::new());
        let connected = world.clone();
        let connect = move || {
            let world = connected.clone();
            async move { world.store(Setup::default()).await }
        };
        let bench = Trial::new(connect).state(till.clone()).trace(&trace);
        let trial = bench.handler::<Pays<W, KEYED>>().await.unwrap();
        Self { world, trial, till, trace }
    }

    /// Publishes an order whose requests fail in this way.
    fn publish(&self, id: &str, faults: impl IntoIterator<Item = Fault>) {
        self.till.provider.fail(id, faults);
        self.trial.broker().publish("trial", Publication::json(&Bill { id: id.to_owned() }).unwrap());
    }

    /// Kills a process while it waits for the answer to a call.
    async fn kill(&self) {
        self.publish("killed", [Fault::Hang]);
        let bait = async {
            while self.till.provider.charged("killed") == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            self.publish("bait", []);
        };
        let (killed, ()) = tokio::join!(self.trial.run_into(Crash::InHandler), bait);
        killed.unwrap();
    }

    /// Orders whose calls work at once, or in the end.
    fn orders(&self) {
        for _ in 0..3 {
            self.publish("plain", []);
        }
        self.publish("busy", [Fault::Busy]);
        self.till.fails_once("fails");
        self.publish("fails", []);
    }

    /// Orders whose calls are in doubt for a while.
    fn doubts(&self) {
        self.publish("answer", [Fault::LoseAnswer]);
        self.publish("request", [Fault::LoseRequest]);
        self.publish("panic", [Fault::Panic]);
        self.publish("late", [Fault::Hang]);
        self.publish("unknown", [Fault::LoseAnswer]);
    }

    /// An operator looks at the provider, and resolves what is dead.
    async fn resolve(&self) {
        for row in self.rows(Filter::default()).await {
            let id = String::from_utf8_lossy(row.identity.key.as_bytes()).into_owned();
            let charges = self.till.provider.ledger();
            let charge = charges.iter().find(|charge| charge.body == id);
            let resolution = match charge {
                _ if id == "given up" => Resolution::Discard,
                Some(charge) => Resolution::answer(&charge.number.to_string()).unwrap(),
                None => Resolution::CallAgain,
            };
            assert!(self.trace.resolve(self.trial.operator(), &row, resolution).await.unwrap(), "{id}");
        }
    }

    async fn rows(&self, filter: Filter) -> Vec<Row> {
        self.trial.operator().list(&filter, Page::new(100)).await.unwrap().rows
    }

    /// Asserts that each order was charged once and has its effect, writes that, and returns the trace.
    async fn end(self, ids: &[&str]) -> String {
        assert!(self.rows(Filter::default()).await.is_empty() && self.rows(Filter::new().scheduled()).await.is_empty());
        for id in ids {
            let effects = self.world.name("effects");
            let asked = format!("SELECT count(*) FROM {effects} WHERE name LIKE '{id} %'");
            let counts = (self.till.provider.charged(id), self.world.number(&asked).await);
            assert_eq!(counts, (1, 1), "{id}");
            self.trace.left(&Key::of(*id).unwrap(), "none", "dated");
        }
        self.trace.text()
    }
}

/// The trace of workers that pay.
pub(crate) async fn payments<W: World, const KEYED: bool>(world: W) -> String {
    let paying = Paying::new::<KEYED>(world).await;
    paying.kill().await;
    paying.orders();
    paying.doubts();
    for id in ["refused", "given up"] {
        paying.publish(id, [Fault::Error]);
    }
    paying.trial.run().await.unwrap();
    paying.resolve().await;
    paying.trial.run().await.unwrap();
    let ids = ["killed", "bait", "plain", "busy", "fails", "answer", "request", "panic", "late", "unknown", "refused"];
    paying.end(&ids).await
}

/// A short trace, for changes.
pub(crate) async fn short_payments<W: World>(world: W) -> String {
    let paying = Paying::new::<true>(world).await;
    paying.orders();
    paying.trial.run().await.unwrap();
    paying.end(&["plain", "busy", "fails"]).await
}
