//! Facts about a handler of a trial.

use std::time::Duration;

use idem_core::{Extract, Handler};

/// Facts about a handler of a trial.
#[derive(Debug, Clone, Copy, Default)]
pub struct HandlerFacts {
    pub(super) name: &'static str,
    /// Whether it makes an external call.
    pub(super) calls: bool,
    /// How long after its call the provider is asked about it, if that has no key.
    pub(super) asks_after: Option<Duration>,
}

impl HandlerFacts {
    /// The facts of this handler in a worker with the state `St`.
    pub(super) fn of<H, St>() -> Self
    where
        H: Handler,
        H::Params: Extract<St>,
    {
        let call = <H::Params as Extract<St>>::external();
        Self { name: H::NAME, calls: call.is_some(), asks_after: call.and_then(|call| call.asks_after()) }
    }
}
