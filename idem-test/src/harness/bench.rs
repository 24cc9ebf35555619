//! A trial that has no handler yet.

use std::sync::Arc;
use std::time::Duration;

use idem_core::{
    Codec, DecodeError, Delivery, Error, Extract, Handler, HasConnection, Json, Param as _, PrepareError, RetryPolicy,
    Store, SuspectLock, Worker,
};
use tokio::sync::oneshot;

use crate::Tapped;
use crate::tapped_store::{Over, TappedStore};
use crate::trace::Trace;

use super::connect::{Connect, Connecting};
use super::fate::Fate;
use super::process::Running;
use super::source::{Receiving, identify};
use super::trial::{CONSUMER, QUEUE, Start, Subject, Trial};

/// A trial without a handler yet; what the worker has can still be set. The [module](super) has an example.
#[derive(Debug)]
pub struct Bench<F, St = (), C = Json> {
    pub(super) connect: F,
    state: St,
    codec: Arc<C>,
    settings: Settings,
}

/// The settings of each worker.
#[derive(Debug, Clone)]
struct Settings {
    inbox: bool,
    batch: usize,
    route_by: RouteBy,
    trace: Option<Trace>,
}

/// The part of a message that selects its handler.
#[derive(Debug, Clone)]
enum RouteBy {
    EventType,
    Header(String),
    Subject,
}

impl Trial<()> {
    /// Creates a trial in which each process connects to its database with this function, for example `move ||
    /// Sqlite::options(&url).connect()`.
    #[allow(clippy::new_ret_no_self, reason = "as for a worker, the handler comes last")]
    pub fn new<F>(connect: F) -> Bench<F> {
        let settings = Settings { inbox: false, batch: 1, route_by: RouteBy::EventType, trace: None };
        Bench { connect, state: (), codec: Arc::new(Json), settings }
    }
}

impl<F, St, C> Bench<F, St, C> {
    /// Sets the state from which the handler extracts [`State`](idem_core::State).
    pub fn state<T>(self, state: T) -> Bench<F, T, C> {
        Bench { connect: self.connect, state, codec: self.codec, settings: self.settings }
    }

    /// Sets the codec, as [`Worker::codec`] does; JSON by default. The processes share it, and with it what it has
    /// fetched.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Codec, Handler, Sqlite};
    /// # use idem_test::Trial;
    /// # async fn test<order_paid: Handler<Params = (), Connection = sqlx::SqliteConnection>>(
    /// #     protobuf: impl Codec<order_paid::Message>, bytes: Vec<u8>, url: String) -> Result<(), BoxError> {
    /// let trial = Trial::new(move || Sqlite::options(&url).connect()).codec(protobuf).handler::<order_paid>().await?;
    /// trial.deliver(bytes).times(2).await?;
    /// # Ok(()) }
    /// ```
    pub fn codec<D>(self, codec: D) -> Bench<F, St, D> {
        Bench { connect: self.connect, state: self.state, codec: Arc::new(codec), settings: self.settings }
    }

    /// Stores each message before it runs, as [`Worker::inbox`] does.
    pub fn inbox(mut self) -> Self {
        self.settings.inbox = true;
        self
    }

    /// Processes up to `messages` messages together, as [`Worker::batch`] does.
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// Reads the event type from this header, as [`Worker::event_type`] does. A test sets it by
    /// [`Sending::header`](super::Sending::header).
    pub fn event_type(mut self, header: impl Into<String>) -> Self {
        self.settings.route_by = RouteBy::Header(header.into());
        self
    }

    /// Routes by subject, as [`Worker::route_by_subject`] does, for handlers with a pattern such as
    /// `event = "orders.*.paid"`. A test sets the subject by [`Sending::subject`](super::Sending::subject).
    pub fn route_by_subject(mut self) -> Self {
        self.settings.route_by = RouteBy::Subject;
        self
    }

    /// Writes the steps of each process into this trace, except those of [`Trial::crash_everywhere`]. The messages are then
    /// decoded once more. The model knows no natural handlers, and the external call of a handler has to be a
    /// [`TracedCall`](super::TracedCall).
    #[doc(hidden)]
    pub fn trace(mut self, trace: &Trace) -> Self {
        self.settings.trace = Some(trace.clone());
        self
    }

    /// Sets the handler. The worker reads CloudEvents if the handler's key is that of a CloudEvent.
    ///
    /// # Errors
    /// Fails if the database cannot be used.
    pub async fn handler<H>(self) -> Result<Trial<<F::Output as Connecting>::Store>, Error>
    where
        H: Handler,
        F: Connect,
        <F::Output as Connecting>::Store: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Clone + Send + Sync + 'static,
        C: Codec<H::Message>,
    {
        let Self { connect, state, codec, settings } = self;
        // Before anything is created, so that it runs after a failure, too.
        let cleanup = connect.cleanup();
        let store = connect.connect().await?;
        let connect = Arc::new(connect);
        let (inbox, trace) = (settings.inbox, settings.trace.clone());
        let stores = settings.inbox || H::Params::CALLS > 0;
        let identify = identify::<H, C>(codec.clone());
        let launch = move |start: Start, fate: Fate, shutdown: oneshot::Receiver<()>| -> Running {
            let (connect, state, codec) = (connect.clone(), state.clone(), Shared(codec.clone()));
            let (settings, identify) = (settings.clone(), identify.clone());
            Box::pin(async move {
                let store = connect.connect().await?;
                if fate.is_counted() {
                    warm(&store).await?;
                }
                let store = TappedStore::new(store, fate.clone());
                let receiving = Receiving { fate, identify, stores };
                let source = Tapped::new(start.broker.queue(QUEUE), receiving);
                let watched = start.watched;
                let quick = RetryPolicy::new().min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(10));
                let worker = Worker::new(CONSUMER, store, source).state(state).codec(codec).handler::<Over<
                    H,
                    <F::Output as Connecting>::Store,
                    Fate,
                >>();
                let worker = if settings.inbox { worker.inbox() } else { worker };
                let worker = if H::NEEDS_CLOUD_EVENT { worker.cloud_events() } else { worker };
                let worker = match settings.route_by {
                    RouteBy::EventType => worker,
                    RouteBy::Header(header) => worker.event_type(header),
                    RouteBy::Subject => worker.route_by_subject(),
                };
                worker
                    .batch(settings.batch)
                    .concurrency(start.concurrency)
                    .inbox_concurrency(2)
                    .retry(quick)
                    .poll_interval(Duration::from_millis(20))
                    .lease_duration(start.lease)
                    .suspect_lock(SuspectLock::new())
                    .observe(move |_, outcome| watched.push(outcome.clone()))
                    .run_until(async {
                        // A dropped sender also means shutdown.
                        let _ = shutdown.await;
                    })
                    .await
            })
        };
        let subject = Subject { name: H::NAME, is_natural: H::NATURAL, stages: H::Params::STAGES, inbox };
        Ok(Trial::made(&store, Box::new(launch), (subject, trace), cleanup))
    }
}

/// Opens the connection that the first message will use, so that the points of its login are not counted.
async fn warm<S: Store>(store: &S) -> Result<(), Error> {
    let opened = async { store.rollback(store.begin(Duration::from_secs(10)).await?).await };
    opened.await.map(drop).map_err(|error| Error::database("could not begin a transaction", error))
}

/// A codec that several workers have.
struct Shared<C>(Arc<C>);

impl<M, C: Codec<M>> Codec<M> for Shared<C> {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        self.0.decode(delivery)
    }

    fn tombstone(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        self.0.tombstone(delivery)
    }

    async fn prepare(&self, delivery: &Delivery) -> Result<(), PrepareError> {
        self.0.prepare(delivery).await
    }
}
