//! A test on any of the brokers, in any mode.

use std::cell::Cell;
use std::collections::BTreeSet;

use idem::store::Row;
use idem::{Postgres, Source};
use idem_brokers::Broker;
use sqlx::Executor;

use crate::{Mode, Order, Running, Site, Tuned, World, until};

/// The prefix of the ids of a warm-up.
const WARM: &str = "warm";

/// A world and a site on one of the brokers.
pub struct Scene<B> {
    /// The database and the state of the handler.
    pub world: World,
    /// The broker.
    pub site: Site<B>,
    /// The mode of all workers.
    pub mode: Mode,
    /// The store of all workers.
    pub store: Postgres,
}

impl<B: Broker> Scene<B> {
    /// Creates a scene; `None` if there is no server to test against.
    pub async fn new(mode: Mode) -> Option<Self> {
        let (world, site) = (World::new().await?, Site::new().await?);
        // Enough for two workers at once, with some connections to spare.
        let store = world.options().connections(96).connect().await.unwrap();
        Some(Self { world, site, mode, store })
    }

    /// Publishes these messages.
    pub async fn publish(&self, orders: &[Order]) {
        let payloads: Vec<_> = orders.iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
        self.site.publish(&payloads).await;
    }

    /// Starts a worker.
    pub async fn start(&self) -> Running {
        self.start_from(self.site.source().await, |worker| worker)
    }

    /// Starts a worker, and waits until newly published messages run in its mode.
    pub async fn start_warm(&self) -> Running {
        let worker = self.start().await;
        self.warm_up().await;
        worker
    }

    /// Waits until the first worker, which must have been started, runs published messages in its mode.
    pub async fn warm_up(&self) {
        self.publish(&orders(WARM, B::WARM_UP, crate::Act::Write)).await;
        let asked = "SELECT count(*) FROM {schema}.effects WHERE id LIKE 'warm-%'";
        until("the worker is warm", || async { self.world.number(asked).await >= B::WARM_UP as i64 }).await;
        // The effect of a message that was stored first may exist before its delivery is known to be stored.
        self.settled().await;
    }

    /// Starts a worker on this source.
    pub fn start_from<Src: Source>(&self, source: Src, tune: impl FnOnce(Tuned<Src>) -> Tuned<Src>) -> Running {
        self.world.start(&self.store, source, |worker| tune(self.mode.tune(worker)))
    }

    /// Waits until there are `count` effects, without those of the warm-up, as long as their number grows.
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

    /// Waits until the broker has the acks of all published messages.
    pub async fn settled(&self) {
        until("all is settled", || async { self.site.left().await == 0 }).await;
    }

    /// The number of runs of the handler so far, without those of the warm-up.
    pub fn runs(&self) -> usize {
        self.world.stage.runs().into_iter().filter(|run| !run.id.starts_with(WARM)).count()
    }

    /// Waits until the handler was called `runs` times, without the calls of the warm-up.
    pub async fn entered(&self, runs: usize) {
        until(&format!("{runs} runs"), || async { self.runs() >= runs }).await;
    }

    /// How many rows the inbox has.
    pub async fn stored(&self) -> i64 {
        self.world.number("SELECT count(*) FROM {schema}.inbox_messages").await
    }

    /// Waits until each of these has its effect and nothing is left, and stops the workers. Asserts that they stop
    /// without an error, that no message has two effects, and that no other message has one. Returns the dead letters.
    pub async fn ends_with(&self, orders: impl IntoIterator<Item = Order>, workers: Vec<Running>) -> Vec<Row> {
        let expected: BTreeSet<String> = orders.into_iter().map(|order| order.id).collect();
        self.effects(expected.len()).await;
        let scheduled = "SELECT count(*) FROM {schema}.inbox_messages WHERE state <> 'dead'";
        until("nothing waits in the inbox", || async { self.world.number(scheduled).await == 0 }).await;
        self.settled().await;
        // Not every broker counts messages that a worker holds, so the workers end first.
        for worker in workers {
            worker.stop().await.unwrap();
        }
        if B::POSITION && self.site.left().await > 0 {
            let again = self.start().await;
            self.settled().await;
            again.stop().await.unwrap();
        }
        until("nothing is left with the broker", || async { self.site.left().await == 0 }).await;
        let effects: Vec<String> = self.world.all_effects().await.into_iter().map(|(id, _)| id).collect();
        let effects: Vec<String> = effects.into_iter().filter(|id| !id.starts_with(WARM)).collect();
        let distinct: BTreeSet<String> = effects.iter().cloned().collect();
        assert_eq!(distinct, expected, "a message has no effect, or one has one that should not");
        assert_eq!(effects.len(), distinct.len(), "a message has two effects");
        self.world.rows(&self.store).await
    }

    /// Removes the site and the schema.
    pub async fn end(self) {
        self.site.end().await;
        self.world.pool.execute(self.world.stage.sql("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    }
}

/// Returns `count` messages with this act, each with a different id.
pub fn orders(what: &str, count: usize, act: crate::Act) -> Vec<Order> {
    (0..count).map(|n| Order::new(format!("{what}-{n}"), act)).collect()
}
