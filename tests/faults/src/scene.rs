//! A test on any of the brokers, in any mode.

use std::cell::Cell;
use std::collections::BTreeSet;

use idem::store::Row;
use idem::{Postgres, Source};
use sqlx::Executor;

use crate::{Mode, Order, Running, Site, Tuned, World, until};

/// The ids of a warm-up begin so.
const WARM: &str = "warm";

/// A world, and a site on one of the brokers.
pub struct Scene<S> {
    /// The database, and what the handler sees.
    pub world: World,
    /// The broker.
    pub site: S,
    /// The mode of all workers.
    pub mode: Mode,
    /// The store of all workers.
    pub store: Postgres,
}

impl<S: Site> Scene<S> {
    /// A new one; `None` where there is no server to test against.
    pub async fn new(mode: Mode) -> Option<Self> {
        let (world, site) = (World::new().await?, S::new().await?);
        // Two workers that run at once, with some connections to spare.
        let store = world.options().connections(96).connect().await.unwrap();
        Some(Self { world, site, mode, store })
    }

    /// Publishes these.
    pub async fn publish(&self, orders: &[Order]) {
        let payloads: Vec<_> = orders.iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
        self.site.publish(&payloads).await;
    }

    /// Starts a worker.
    pub async fn start(&self) -> Running {
        self.start_from(self.site.source().await, |worker| worker)
    }

    /// Starts a worker, and waits until what is published now runs as its mode says.
    pub async fn start_warm(&self) -> Running {
        let worker = self.start().await;
        self.warm_up().await;
        worker
    }

    /// Waits until the first worker, which must have been started, runs what is published as its mode says.
    pub async fn warm_up(&self) {
        self.publish(&orders(WARM, S::WARM_UP, crate::Act::Write)).await;
        let asked = "SELECT count(*) FROM {schema}.effects WHERE id LIKE 'warm-%'";
        until("the worker is warm", || async { self.world.number(asked).await >= S::WARM_UP as i64 }).await;
        // The effect of a message that was stored first may be there before its delivery is known to be stored.
        self.settled().await;
    }

    /// Starts a worker on this source.
    pub fn start_from<Src: Source>(&self, source: Src, tune: impl FnOnce(Tuned<Src>) -> Tuned<Src>) -> Running {
        self.world.start(&self.store, source, |worker| tune(self.mode.tune(worker)))
    }

    /// Waits until so many effects are there, beside those of the warm-up, for as long as there are more and more.
    pub async fn effects(&self, count: usize) {
        let asked = "SELECT count(*) FROM {schema}.effects WHERE id NOT LIKE 'warm-%'";
        let seen = Cell::new(-1);
        while seen.get() < count as i64 {
            let before = seen.get();
            until(&format!("{count} effects; so far {before}"), || async {
                seen.set(self.world.number(asked).await);
                seen.get() > before
            })
            .await;
        }
    }

    /// Waits until the broker has the acks of all that was published so far.
    pub async fn settled(&self) {
        until("all is settled", || async { self.site.left().await == 0 }).await;
    }

    /// The runs of the handler so far, beside those of the warm-up.
    pub fn runs(&self) -> usize {
        self.world.stage.runs().into_iter().filter(|run| !run.id.starts_with(WARM)).count()
    }

    /// Waits until the handler was called so many times, beside those of the warm-up.
    pub async fn entered(&self, runs: usize) {
        until(&format!("{runs} runs"), || async { self.runs() >= runs }).await;
    }

    /// How many rows the inbox has.
    pub async fn stored(&self) -> i64 {
        self.world.number("SELECT count(*) FROM {schema}.inbox_messages").await
    }

    /// Waits until each of these has its effect and nothing is left; the workers are stopped, which must go well. Then
    /// no message has two effects, and none has one that must not. Answers the dead letters.
    pub async fn ends_with(&self, orders: impl IntoIterator<Item = Order>, workers: Vec<Running>) -> Vec<Row> {
        let expected: BTreeSet<String> = orders.into_iter().map(|order| order.id).collect();
        self.effects(expected.len()).await;
        let parked = "SELECT count(*) FROM {schema}.inbox_messages WHERE state = 'parked'";
        until("nothing waits in the inbox", || async { self.world.number(parked).await == 0 }).await;
        self.settled().await;
        // Those that are in the hands of a worker are not counted by each broker: so these end first.
        for worker in workers {
            worker.stop().await.unwrap();
        }
        until("nothing is left with the broker", || async { self.site.left().await == 0 }).await;
        let effects: Vec<String> = self.world.all_effects().await.into_iter().map(|(id, _)| id).collect();
        let effects: Vec<String> = effects.into_iter().filter(|id| !id.starts_with(WARM)).collect();
        let distinct: BTreeSet<String> = effects.iter().cloned().collect();
        assert_eq!(distinct, expected, "a message has no effect, or one has one that should not");
        assert_eq!(effects.len(), distinct.len(), "a message has two effects");
        self.world.rows(&self.store).await
    }

    /// Removes it.
    pub async fn end(self) {
        self.site.end().await;
        self.world.pool.execute(self.world.stage.sql("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    }
}

/// So many messages that do this, each with an id of its own.
pub fn orders(what: &str, count: usize, act: crate::Act) -> Vec<Order> {
    (0..count).map(|n| Order::new(format!("{what}-{n}"), act)).collect()
}
