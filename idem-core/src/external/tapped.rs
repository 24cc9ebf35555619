//! Calls that a test runs.

use std::any::Any;
use std::time::Duration;

use crate::{BoxError, Extract, Extraction};

use super::erased::{Calling, ErasedCall};

/// Runs the calls of a worker, for tests.
pub trait CallTap: 'static {
    /// Runs a call, or the question what became of one.
    fn run<R>(work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send;
}

impl<S> ErasedCall<S> {
    /// Returns the call of these parameters, run by a tap.
    pub fn tapped<P: Extract<S>, T: CallTap>() -> Option<Self> {
        P::external().map(|call| Self { begin: begin::<P, T, S>, ..call })
    }

    /// Returns how long after the take for a call without a key the provider is asked about it, at the earliest; `None` if the
    /// call has a key, or nobody can be asked.
    pub fn asks_after(&self) -> Option<Duration> {
        let asks = self.limits.key_life.is_none() && self.limits.reconciles;
        asks.then(|| self.limits.last_use().saturating_add(self.limits.ask_after))
    }
}

/// Begins the call of these parameters, or asks what became of it, by a tap.
fn begin<P: Extract<S>, T: CallTap, S>(
    message: Box<dyn Any + Send>,
    from: &Extraction<'_, S>,
    asks: bool,
) -> Result<Calling, BoxError> {
    let call = P::external().ok_or("the handler makes no call")?;
    let calling = (call.begin)(message, from, asks)?;
    let tapped: Calling = Box::pin(T::run(calling));
    Ok(tapped)
}
