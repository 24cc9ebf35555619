//! Several workers and relays in one process.

use std::pin::{Pin, pin};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use crate::{Engine, Error, Health, Relay, Sink, Source, Store, Worker};

use super::builder::HasHandlers;

/// Several workers that run in one process and end together, with the relays of their outboxes.
///
/// ```no_run
/// # use idem_core::{Workers, Worker, Store, Source, Handler, HasConnection, Error};
/// # async fn run<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
/// #     store: S, orders: impl Source, payments: impl Source) -> Result<(), Error> {
/// let orders = Worker::new("billing-orders", store.clone(), orders).handler::<H>();
/// let payments = Worker::new("billing-payments", store, payments).handler::<H>();
/// Workers::new().add(orders).add(payments).run_until(idem_core::shutdown_signal()).await
/// # }
/// ```
///
/// A [`Relay`] publishes what the handlers of a worker stage:
///
/// ```no_run
/// # use idem_core::{Workers, Worker, Relay, Store, Sink, Source, Handler, HasConnection, Error};
/// # async fn run<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
/// #     store: S, orders: impl Source, events: impl Sink) -> Result<(), Error> {
/// let relay = Relay::new("billing", store.clone(), events);
/// let worker = Worker::new("billing", store, orders).handler::<H>();
/// Workers::new().add(worker).relay(relay).run_until(idem_core::shutdown_signal()).await
/// # }
/// ```
///
/// Workers of one store share its connections. Each can use `concurrency` and `inbox_concurrency` and a few more at
/// once; if the store has fewer than all of them together, they wait for each other, and the log has the sum.
#[must_use = "workers do nothing until `run_until`"]
#[derive(Default)]
pub struct Workers {
    members: Vec<Member>,
    stop: CancellationToken,
}

/// A worker, or a relay.
struct Member {
    kind: &'static str,
    /// The consumer of the worker, or the outbox of the relay.
    name: String,
    health: Health,
    run: Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>,
}

impl Workers {
    /// Returns a group without workers and relays.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a worker, which has all its handlers.
    #[allow(clippy::should_implement_trait, reason = "a worker is added, not a number")]
    pub fn add<S: Engine, Src: Source, St, C, Stage>(mut self, worker: Worker<S, Src, St, C, Stage>) -> Self
    where
        St: Send + Sync + 'static,
        C: Send + Sync + 'static,
        Stage: HasHandlers,
    {
        let (name, health) = (worker.parts.consumer.clone(), worker.parts.health.clone());
        let run = Box::pin(worker.run_until(self.stop.clone().cancelled_owned()));
        self.members.push(Member { kind: "worker", name, health, run });
        self
    }

    /// Adds a relay, which publishes what the handlers of a worker, or the application, stage in its outbox.
    pub fn relay<S: Store, K: Sink>(mut self, relay: Relay<S, K>) -> Self {
        let (name, health) = (relay.name.clone(), relay.health());
        let run = Box::pin(relay.run_until(self.stop.clone().cancelled_owned()));
        self.members.push(Member { kind: "relay", name, health, run });
        self
    }

    /// Returns a handle to the health of all workers and relays together, for a probe of the process: it is ready while each
    /// of them is. Call it after the last [`add`](Self::add) and [`relay`](Self::relay), because one that is added later is not
    /// part of it. For the health of one, call [`Worker::health`] or [`Relay::health`] before it is added.
    ///
    /// ```
    /// # use idem_core::{Worker, Workers, Store, Source, Handler, HasConnection};
    /// # fn run<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
    /// #     store: S, orders: impl Source, payments: impl Source) {
    /// let orders = Worker::new("billing-orders", store.clone(), orders).handler::<H>();
    /// let payments = Worker::new("billing-payments", store, payments).handler::<H>();
    /// let workers = Workers::new().add(orders).add(payments);
    /// let health = workers.health();
    /// assert!(!health.is_ready(), "they do not run yet");
    /// # }
    /// ```
    pub fn health(&self) -> Health {
        Health::of_all(self.members.iter().map(|member| &member.health))
    }

    /// Runs all workers and relays until `shutdown` completes, and then drains them at the same time, each within its own
    /// [`shutdown_timeout`](Worker::shutdown_timeout). Messages that are staged after a relay has ended wait in the database for
    /// another one, or for the next start. If one cannot start or fails, the others drain as well, so that the process ends and
    /// can be restarted as a whole, instead of going on with a part of its work undone.
    ///
    /// Dropping the future ends all of them at once, as for [`Worker::run_until`] and [`Relay::run_until`].
    ///
    /// # Errors
    /// The first error of a worker or a relay; further ones are logged. [`Error::Config`] if there is neither.
    pub async fn run_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
        if self.members.is_empty() {
            return Err(Error::Config("there is no worker to run: add one, `Workers::new().add(worker)`".to_owned()));
        }
        let Self { members, stop } = self;
        let mut running = FuturesUnordered::new();
        for Member { kind, name, run, .. } in members {
            running.push(async move { (kind, name, run.await) });
        }
        let mut shutdown = pin!(shutdown);
        let mut first = None;
        loop {
            let ended = tokio::select! {
                biased;
                () = shutdown.as_mut(), if !stop.is_cancelled() => {
                    stop.cancel();
                    continue;
                }
                ended = running.next() => ended,
            };
            let Some((kind, name, result)) = ended else { return first.map_or(Ok(()), Err) };
            if !stop.is_cancelled() {
                tracing::warn!(name, "a {kind} has ended, and the others of the process drain");
                stop.cancel();
            }
            if let Err(error) = result {
                tracing::error!(name, error = crate::error::text(&error), "a {kind} has failed");
                first.get_or_insert(error);
            }
        }
    }
}

impl std::fmt::Debug for Workers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.members.iter().map(|member| (member.kind, &member.name))).finish()
    }
}
