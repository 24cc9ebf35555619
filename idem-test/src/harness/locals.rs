//! The handlers of a trial that take local messages.

use idem_core::{Codec, Extract, Handler, HandlerOptions, HasConnection, Store, WithHandlers, Worker};

use crate::tapped_store::{Over, TappedStore};
use crate::{Queue, Tapped};

use super::crash_plan::CrashPlan;
use super::facts::HandlerFacts;
use super::shared_codec::Shared;
use super::source::Receiving;

/// The worker of a process of a trial.
pub(super) type TrialWorker<S, St, C> =
    Worker<TappedStore<S, CrashPlan>, Tapped<Queue, Receiving>, St, Shared<C>, WithHandlers>;

/// The handlers of a trial that take local messages: none, `()`, or one and others, `(H, Others)`.
/// [`Bench::local`](super::Bench::local) adds one.
pub trait Locals<S, St, C>: 'static {
    /// Adds them to a worker.
    #[doc(hidden)]
    fn add(worker: TrialWorker<S, St, C>) -> TrialWorker<S, St, C>;

    /// Returns what a trial knows of them.
    #[doc(hidden)]
    fn facts() -> Vec<HandlerFacts>;
}

impl<S, St, C> Locals<S, St, C> for () {
    fn add(worker: TrialWorker<S, St, C>) -> TrialWorker<S, St, C> {
        worker
    }

    fn facts() -> Vec<HandlerFacts> {
        Vec::new()
    }
}

impl<S, St, C, H, L> Locals<S, St, C> for (H, L)
where
    S: Store + HasConnection<H::Connection>,
    St: Send + Sync + 'static,
    C: Codec<H::Message>,
    H: Handler,
    H::Params: Extract<St>,
    L: Locals<S, St, C>,
{
    fn add(worker: TrialWorker<S, St, C>) -> TrialWorker<S, St, C> {
        L::add(worker).handler_options::<Over<H, S, CrashPlan>>(HandlerOptions::new().local_only())
    }

    fn facts() -> Vec<HandlerFacts> {
        let mut facts = <L as Locals<S, St, C>>::facts();
        facts.push(HandlerFacts::of::<H, St>());
        facts
    }
}
