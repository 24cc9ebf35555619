//! A trial that has no handler yet.

use std::marker::PhantomData;
use std::sync::Arc;

use idem_core::{Codec, Error, Extract, Handler, HasConnection, Json, Param as _};
use tokio::sync::oneshot;

use crate::MemorySink;
use crate::provider::Provider;
use crate::trace::Trace;

use super::connect::{Connect, Connecting};
use super::crash_plan::CrashPlan;
use super::facts::HandlerFacts;
use super::launch::{Common, RouteBy, Settings};
use super::locals::Locals;
use super::process::Running;
use super::source::identify;
use super::subject::Subject;
use super::trial::{Start, Trial};

/// A trial without a handler yet; what the worker has can still be set. The [module](super) has an example.
#[derive(Debug)]
pub struct Bench<F, St = (), C = Json, L = ()> {
    pub(super) connect: F,
    state: St,
    codec: Arc<C>,
    settings: Settings,
    provider: Option<Provider>,
    sink: Option<MemorySink>,
    locals: PhantomData<fn() -> L>,
}

impl Trial<()> {
    /// Creates a trial in which each process connects to its database with this function, for example `move ||
    /// Sqlite::options(&url).connect()`. `Trial::sqlite` and `Trial::postgres` need none.
    #[allow(clippy::new_ret_no_self, reason = "as for a worker, the handler comes last")]
    pub fn new<F>(connect: F) -> Bench<F> {
        let settings = Settings { inbox: false, batch: 1, route_by: RouteBy::EventType, trace: None };
        let codec = Arc::new(Json);
        Bench { connect, state: (), codec, settings, provider: None, sink: None, locals: PhantomData }
    }
}

impl<F, St, C, L> Bench<F, St, C, L> {
    /// Sets the state from which the handler extracts [`State`](idem_core::State).
    pub fn state<T>(self, state: T) -> Bench<F, T, C, L> {
        let Self { connect, codec, settings, provider, sink, locals, .. } = self;
        Bench { connect, state, codec, settings, provider, sink, locals }
    }

    /// Sets the codec, as [`Worker::codec`](idem_core::Worker::codec) does; JSON by default. The processes share it, and with
    /// it what it has fetched.
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
    pub fn codec<D>(self, codec: D) -> Bench<F, St, D, L> {
        let Self { connect, state, settings, provider, sink, locals, .. } = self;
        Bench { connect, state, codec: Arc::new(codec), settings, provider, sink, locals }
    }

    /// Adds a handler that takes the [local messages](idem_core::Outbox::local) of the trial's handler, and nothing else. It
    /// has the same state and codec. A handler that hands over to one that is not there fails.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Handler, Sqlite};
    /// # use idem_test::Trial;
    /// # async fn test<order_paid, send_receipt>(event: serde_json::Value, url: String) -> Result<(), BoxError>
    /// # where
    /// #     order_paid: Handler<Params = (), Connection = sqlx::SqliteConnection, Message: serde::de::DeserializeOwned>,
    /// #     send_receipt: Handler<Params = (), Connection = sqlx::SqliteConnection, Message: serde::de::DeserializeOwned>,
    /// # {
    /// let trial = Trial::new(move || Sqlite::options(&url).connect()).local::<send_receipt>().handler::<order_paid>().await?;
    /// trial.deliver_json(&event)?.times(2).await?;
    /// # Ok(()) }
    /// ```
    pub fn local<H: Handler>(self) -> Bench<F, St, C, (H, L)> {
        let Self { connect, state, codec, settings, provider, sink, .. } = self;
        Bench { connect, state, codec, settings, provider, sink, locals: PhantomData }
    }

    /// Shows the trial the provider that its handlers call, so that [`Trial::crash_everywhere`] checks its ledger: each
    /// message has to be charged as often as one without a crash. The handlers extract the provider, or a clone of it, from
    /// the [state](Self::state).
    pub fn provider(mut self, provider: &Provider) -> Self {
        self.provider = Some(provider.clone());
        self
    }

    /// Lets a relay run next to the worker of each process, which publishes to this sink what the handlers stage. Each
    /// call of the trial then returns when the outbox is empty, too. [`Trial::crash_everywhere`] also lets processes
    /// die while their relay publishes and deletes a message, and counts the messages that were published, by their
    /// ids: each message has to publish as many as one without a crash.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Handler, Outbox, Sqlite};
    /// # use idem_test::{MemorySink, Trial};
    /// # async fn test<order_paid>(event: serde_json::Value, url: String) -> Result<(), BoxError>
    /// # where
    /// #     order_paid: Handler<Params = (Outbox,), Connection = sqlx::SqliteConnection, Message: serde::de::DeserializeOwned>,
    /// # {
    /// let sink = MemorySink::new();
    /// let trial = Trial::new(move || Sqlite::options(&url).connect()).relay(&sink).handler::<order_paid>().await?;
    /// trial.deliver_json(&event)?.times(2).await?;
    /// assert_eq!(sink.published().len(), 1);
    /// # Ok(()) }
    /// ```
    pub fn relay(mut self, sink: &MemorySink) -> Self {
        self.sink = Some(sink.clone());
        self
    }

    /// Stores each message before it runs, as [`Worker::inbox`](idem_core::Worker::inbox) does.
    pub fn inbox(mut self) -> Self {
        self.settings.inbox = true;
        self
    }

    /// Processes up to `messages` messages together, as [`Worker::batch`](idem_core::Worker::batch) does.
    pub fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// Reads the event type from this header, as [`Worker::event_type`](idem_core::Worker::event_type) does. A test sets it
    /// by [`Sending::header`](super::Sending::header).
    pub fn event_type(mut self, header: impl Into<String>) -> Self {
        self.settings.route_by = RouteBy::Header(header.into());
        self
    }

    /// Routes by subject, as [`Worker::route_by_subject`](idem_core::Worker::route_by_subject) does, for handlers with a
    /// pattern such as `event = "orders.*.paid"`. A test sets the subject by [`Sending::subject`](super::Sending::subject).
    pub fn route_by_subject(mut self) -> Self {
        self.settings.route_by = RouteBy::Subject;
        self
    }

    /// Writes the steps of each process into this trace, except those of [`Trial::crash_everywhere`]. The messages are then
    /// decoded once more. The model knows no natural handlers, the external call of a handler has to be a
    /// [`TracedCall`](super::TracedCall), and there can be no [`relay`](Self::relay), whose sink would write no steps.
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
        L: Locals<<F::Output as Connecting>::Store, St, C>,
    {
        let Self { connect, state, codec, settings, provider, sink, .. } = self;
        // Before anything is created, so that it runs after a failure, too.
        let cleanup = connect.cleanup();
        let store = connect.connect().await?;
        let (inbox, trace) = (settings.inbox, settings.trace.clone());
        let subject = Arc::new(Subject {
            handler: HandlerFacts::of::<H, St>(),
            locals: <L as Locals<<F::Output as Connecting>::Store, St, C>>::facts(),
            is_natural: H::NATURAL,
            stages: H::Params::STAGES,
            inbox,
            provider,
            sink: sink.clone(),
        });
        let identify = identify::<H, C>(codec.clone());
        let common = Arc::new(Common { connect, state, codec, settings, identify, sink });
        let launch = move |start: Start, crash_plan: CrashPlan, shutdown: oneshot::Receiver<()>| -> Running {
            Box::pin(common.clone().run::<H, L>(start, crash_plan, shutdown))
        };
        Ok(Trial::made(&store, Box::new(launch), (subject, trace), cleanup))
    }
}
