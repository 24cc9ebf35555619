//! The type-erased handlers of a worker, and their decoded messages that are ready to run.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::codec::preparing;
use crate::external::{CallLimits, Calling};
use crate::handler_options::HandlerLimits;
use crate::outbox::Outbox;
use crate::panic_text::panic_text;
use crate::{
    BoxError, Codec, DecodeError, Delivery, Engine, Extract, Extraction, Fingerprint, Handler, HasConnection, Input,
    Key, KeyError, Param as _, PrepareError, Reason,
};

/// The properties of a handler, which are the same for all its messages.
pub(crate) struct Facts {
    pub(crate) name: &'static str,
    /// The names that it had before.
    pub(crate) formerly: &'static [&'static str],
    pub(crate) event: Option<&'static str>,
    /// Its own limits, which replace the worker's.
    pub(crate) limits: HandlerLimits,
    /// Whether its key needs these parts of a delivery, which a broker may not provide.
    pub(crate) needs_position: bool,
    pub(crate) needs_partition_key: bool,
    pub(crate) needs_cloud_event: bool,
    /// Whether it says `natural`: what it writes is idempotent by itself. Whether its messages run without claims depends
    /// on the worker too: see `Route::is_unclaimed`.
    pub(crate) is_natural: bool,
    /// Whether it stages messages.
    pub(crate) stages: bool,
    pub(crate) takes_batch: bool,
    /// The limits of the external call that is made before it runs, if there is one.
    pub(crate) external: Option<CallLimits>,
    /// Whether that call takes the message of the handler.
    pub(crate) call_fits: bool,
    /// Whether a parameter is about an external call.
    pub(crate) needs_call: bool,
    /// How many external calls its parameters ask for.
    pub(crate) calls: usize,
}

/// A handler as seen by the pipeline.
pub(crate) trait Registered<S: Engine>: Send + Sync {
    fn facts(&self) -> &Facts;

    /// Whether the effects of the handler are deduplicated only, and not applied together with the completion.
    fn is_best_effort(&self) -> bool;

    /// Returns the fingerprint, which tells a copy from another message.
    fn fingerprint(&self, delivery: &Delivery) -> Result<Fingerprint, Undeliverable>;

    /// Joins many jobs into one, for a batch handler. `None` if it takes one message at a time.
    fn join(&self, jobs: Vec<Box<dyn Job<S>>>) -> Option<Box<dyn Job<S>>>;

    /// Decodes the message and determines its key: if `key` is empty, the message's own key is written to it.
    fn decode(&self, delivery: &Delivery, key: &mut Key) -> Result<Box<dyn Job<S>>, NoJob>;

    /// Decodes the message and returns its key; `None` if that needs a fact that the delivery does not have.
    fn key_if_known(&self, delivery: &Delivery) -> Result<Option<Key>, NoJob>;

    /// Decodes the message of a delivery with this key, and begins its external call, or, with `asks`, the question what became
    /// of it. The inner error is that of an extractor.
    fn begin_call(&self, delivery: &Delivery, key: &Key, asks: bool) -> Result<Result<Calling, BoxError>, NoJob>;

    /// Lets the codec fetch the data that decoding this delivery needs.
    fn prepare_codec<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), PrepareError>>;
}

/// Why a delivery has no job.
#[derive(Debug)]
pub(crate) enum NoJob {
    /// There can never be a job.
    Undeliverable(Undeliverable),
    /// The codec has to prepare first.
    Unprepared,
}

impl From<Undeliverable> for NoJob {
    fn from(undeliverable: Undeliverable) -> Self {
        Self::Undeliverable(undeliverable)
    }
}

/// A delivery that can never be passed to a handler.
#[derive(Debug)]
pub(crate) struct Undeliverable {
    pub(crate) reason: Reason,
    pub(crate) error: String,
}

impl Undeliverable {
    pub(crate) fn new(reason: Reason, error: impl std::fmt::Display) -> Self {
        Self { reason, error: crate::error::clean(&error.to_string()) }
    }
}

/// Binds a handler type to the state of its worker and to a codec.
pub(crate) struct Bound<H, St, C> {
    state: Arc<St>,
    codec: Arc<C>,
    facts: Facts,
    handler: PhantomData<fn() -> H>,
}

impl<H: Handler, St, C> Bound<H, St, C>
where
    H::Params: Extract<St>,
{
    pub(crate) fn new(state: Arc<St>, codec: Arc<C>, limits: HandlerLimits) -> Self {
        let call = H::Params::external();
        let facts = Facts {
            name: H::NAME,
            formerly: H::FORMERLY,
            event: H::EVENT,
            limits,
            needs_position: H::NEEDS_POSITION,
            needs_partition_key: H::NEEDS_PARTITION_KEY,
            needs_cloud_event: H::NEEDS_CLOUD_EVENT,
            is_natural: H::NATURAL,
            stages: H::Params::STAGES,
            takes_batch: H::Input::TAKES_BATCH,
            call_fits: call.as_ref().is_none_or(|call| call.message == TypeId::of::<H::Message>()),
            external: call.map(|call| call.limits),
            needs_call: H::Params::NEEDS_CALL,
            calls: H::Params::CALLS,
        };
        Self { state, codec, facts, handler: PhantomData }
    }
}

impl<S, H, St, C> Registered<S> for Bound<H, St, C>
where
    S: HasConnection<H::Connection>,
    H: Handler,
    H::Params: Extract<St>,
    St: Send + Sync,
    C: Codec<H::Message>,
{
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn is_best_effort(&self) -> bool {
        S::BEST_EFFORT
    }

    fn join(&self, jobs: Vec<Box<dyn Job<S>>>) -> Option<Box<dyn Job<S>>> {
        let (mut inputs, mut first) = (Vec::with_capacity(jobs.len()), None);
        let mut staged: Option<Outbox> = None;
        for job in jobs {
            let job: Box<dyn Any> = job;
            let Ready::<H> { input, params, outbox } = *job.downcast().ok()?;
            inputs.push(input);
            // The parameters are those of the first message, unless an extractor has failed for another one.
            if first.as_ref().is_none_or(|first: &Result<_, _>| first.is_ok() && params.is_err()) {
                first = Some(params);
            }
            // An extractor of the application may have staged messages.
            match (&staged, outbox) {
                (Some(staged), Some(outbox)) => staged.append(&outbox, H::NAME),
                (None, outbox) => staged = outbox,
                (Some(_), None) => {}
            }
        }
        Some(Box::new(Ready::<H> {
            input: <H::Input as Input<H::Message>>::join(inputs)?,
            params: first?,
            outbox: staged,
        }))
    }

    fn fingerprint(&self, delivery: &Delivery) -> Result<Fingerprint, Undeliverable> {
        caught(Reason::NoKey, "the fingerprint", || Ok(H::fingerprint(delivery).by(H::RECIPE)))
    }

    fn begin_call(&self, delivery: &Delivery, key: &Key, asks: bool) -> Result<Result<Calling, BoxError>, NoJob> {
        let Some(call) = H::Params::external() else { return Ok(Err("the handler makes no call".into())) };
        let message = Box::new(self.message(delivery)?);
        let from = Extraction::new(delivery, key, &*self.state);
        let begun = catch_unwind(AssertUnwindSafe(|| (call.begin)(message, &from, asks).map(call.tap)));
        Ok(begun.unwrap_or_else(|panic| Err(format!("an extractor panicked: {}", panic_text(panic.as_ref())).into())))
    }

    fn prepare_codec<'a>(&'a self, delivery: &'a Delivery) -> BoxFuture<'a, Result<(), PrepareError>> {
        // Called in the first poll, so that a panic of the call itself is also caught.
        Box::pin(preparing(async move { self.codec.prepare(delivery).await }))
    }

    fn key_if_known(&self, delivery: &Delivery) -> Result<Option<Key>, NoJob> {
        match Self::key(&self.message(delivery)?, delivery)? {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Missing { .. }) => Ok(None),
            Err(error) => Err(Undeliverable::new(Reason::NoKey, error).into()),
        }
    }

    fn decode(&self, delivery: &Delivery, key: &mut Key) -> Result<Box<dyn Job<S>>, NoJob> {
        let message = self.message(delivery)?;
        if key.as_bytes().is_empty() {
            *key = Self::key(&message, delivery)?.map_err(|error| Undeliverable::new(Reason::NoKey, error))?;
        }
        // A failure or a panic of an extractor counts as an attempt of the message.
        let from = Extraction::new(delivery, key, &*self.state);
        let params = catch_unwind(AssertUnwindSafe(|| H::Params::extract(&from)))
            .unwrap_or_else(|panic| Err(format!("an extractor panicked: {}", panic_text(panic.as_ref())).into()));
        Ok(Box::new(Ready::<H> { input: H::Input::one(message), params, outbox: from.outbox.into_inner() }))
    }
}

impl<H: Handler, St, C: Codec<H::Message>> Bound<H, St, C> {
    fn message(&self, delivery: &Delivery) -> Result<H::Message, NoJob> {
        caught(Reason::Undecodable, "decoding", || {
            self.decode(delivery).map_err(|error| match error {
                DecodeError::Unprepared => NoJob::Unprepared,
                DecodeError::Undecodable(error) => {
                    Undeliverable::new(Reason::Undecodable, crate::error::text(error.as_ref())).into()
                }
            })
        })
    }

    fn decode(&self, delivery: &Delivery) -> Result<H::Message, DecodeError> {
        match (delivery.has_no_data(), H::TOMBSTONES) {
            (false, _) => self.codec.decode(delivery),
            (true, true) => self.codec.tombstone(delivery),
            (true, false) => Err(format!(
                "the delivery is a tombstone, which has no payload, or an event without data, and the handler `{}` takes \
                 none: let its message be an `Option`, which is `None` then",
                H::NAME
            )
            .into()),
        }
    }

    /// Returns the key of a message, which is not empty.
    fn key(message: &H::Message, delivery: &Delivery) -> Result<Result<Key, KeyError>, Undeliverable> {
        let filled = |key: Key| if key.as_bytes().is_empty() { Err(KeyError::Empty) } else { Ok(key) };
        caught(Reason::NoKey, "the key", || Ok(H::key(message, delivery).and_then(filled)))
    }
}

/// A decoded message with all parameters of its handler, ready to run in a transaction.
pub(crate) trait Job<S: Engine>: Any + Send {
    /// Returns the outbox into which the run stages messages, if the handler takes it.
    fn outbox(&self) -> Option<&Outbox>;

    fn run(self: Box<Self>, lent: &mut S::Lent) -> BoxFuture<'_, Result<(), BoxError>>;
}

/// One message for one call, or many of a handler that takes a batch.
struct Ready<H: Handler> {
    input: H::Input,
    params: Result<H::Params, BoxError>,
    /// Of many messages: that of the first one, as the other parameters, with what was staged into those of the others.
    outbox: Option<Outbox>,
}

impl<S: HasConnection<H::Connection>, H: Handler> Job<S> for Ready<H> {
    fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }

    fn run(self: Box<Self>, lent: &mut S::Lent) -> BoxFuture<'_, Result<(), BoxError>> {
        Box::pin(async move { H::handle(self.input, self.params?, S::connection(lent)).await })
    }
}

/// A panic in user code must affect only its message, not the worker task: the message is undeliverable for this reason.
fn caught<T, E: From<Undeliverable>>(reason: Reason, what: &str, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Undeliverable::new(reason, format!("{what} panicked: {}", panic_text(panic.as_ref()))).into())
    })
}
