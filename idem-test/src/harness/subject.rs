//! The handlers of a trial, and the systems around them.

use std::time::Duration;

use crate::MemorySink;
use crate::provider::Provider;

use super::facts::HandlerFacts;
use super::phase::Phase;

/// The handlers of a trial, and the systems around them.
#[derive(Debug, Default)]
pub(super) struct Subject {
    /// The handler of what is delivered.
    pub(super) handler: HandlerFacts,
    /// The handlers of its local messages.
    pub(super) locals: Vec<HandlerFacts>,
    pub(super) is_natural: bool,
    pub(super) stages: bool,
    /// Whether its messages are stored before they run.
    pub(super) inbox: bool,
    /// The provider that is called.
    pub(super) provider: Option<Provider>,
    /// The sink to which a relay publishes.
    pub(super) sink: Option<MemorySink>,
}

impl Subject {
    /// Returns whether a handler makes an external call.
    fn calls(&self) -> bool {
        self.handler.calls || self.locals.iter().any(|local| local.calls)
    }

    /// Returns whether a handler makes an external call whose charges the trial does not see.
    pub(super) fn has_unseen_charges(&self) -> bool {
        self.calls() && self.provider.is_none()
    }

    /// Returns the phases of a message, in which its process has to die.
    pub(super) fn phases(&self) -> impl Iterator<Item = Phase> {
        let calls = self.calls();
        Phase::ALL.iter().copied().filter(move |phase| match phase {
            Phase::BeforeCall => self.handler.calls,
            Phase::CallWritten | Phase::InCall | Phase::AnswerRead | Phase::AnswerKept => calls,
            Phase::InLocalHandler => !self.locals.is_empty(),
            Phase::BeforePublish | Phase::InPublish | Phase::ConfirmRead => self.sink.is_some(),
            Phase::InDelete | Phase::Deleted => self.sink.is_some(),
            Phase::BeforeHandler | Phase::InHandler | Phase::InCommit | Phase::After => true,
        })
    }

    /// Returns whether the handler of this name is one of local messages.
    pub(super) fn is_local(&self, handler: &str) -> bool {
        self.handler.name != handler
    }

    /// Returns how long after the call of this handler the provider is asked about it, if that has no key.
    pub(super) fn asks_after(&self, handler: &str) -> Option<Duration> {
        let mut handlers = std::iter::once(&self.handler).chain(&self.locals);
        handlers.find(|known| known.name == handler)?.asks_after
    }
}
