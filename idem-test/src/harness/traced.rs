//! A worker outside of a trial whose steps are written into a trace.

use std::sync::Arc;

use idem_core::{Codec, Handler, Json, Param as _};

use crate::tap::{Tapped, TappedSink};
use crate::tapped_store::{Over, TappedStore};
use crate::trace::{ProcessTrace, Trace};

use super::crash_plan::CrashPlan;
use super::source::{Receiving, identify};

/// A store whose steps are written into a trace.
pub type TracedStore<S> = TappedStore<S, CrashPlan>;
/// A source whose deliveries and acks are written into a trace.
pub type TracedSource<Src> = Tapped<Src, Receiving>;
/// A sink whose messages are written into a trace.
pub type TracedSink<K> = TappedSink<K, Option<ProcessTrace>>;
/// The handler `H` of the store `S`, for the traced one.
pub type TracedHandler<H, S> = Over<H, S, CrashPlan>;

/// A process whose steps are written into a trace.
#[derive(Debug, Clone)]
pub struct TracedProcess(CrashPlan);

impl TracedProcess {
    /// A process that writes into this trace.
    pub fn new(trace: &Trace) -> Self {
        Self(CrashPlan::new(None, Some(trace.process())))
    }

    /// The store of its workers.
    pub fn store<S>(&self, within: S) -> TracedStore<S> {
        TappedStore::new(within, self.0.clone())
    }

    /// The source of its worker, whose handler is `H` and whose messages are JSON. `inbox`: the worker stores each message
    /// before it runs.
    pub fn source<H: Handler, Src>(&self, within: Src, inbox: bool) -> TracedSource<Src>
    where
        Json: Codec<H::Message>,
    {
        let identify = identify::<H, Json>(Arc::new(Json));
        Tapped::new(within, Receiving { crash_plan: self.0.clone(), identify, stores: inbox || H::Params::CALLS > 0 })
    }

    /// The sink of its relay, which reads the outbox of [its store](Self::store).
    pub fn sink<K>(&self, within: K) -> TracedSink<K> {
        TappedSink::new(within, self.0.traced().cloned())
    }

    /// Writes that the process has ended.
    pub fn end(&self) {
        self.0.traced().into_iter().for_each(ProcessTrace::end);
    }
}
