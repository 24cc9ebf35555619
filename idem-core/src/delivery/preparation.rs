//! The results of codecs' preparations for a delivery.

use std::sync::Arc;

use crate::store::HandlerId;

/// The results of codecs' preparations for a delivery, in this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Preparation {
    /// The number of tries up to the last successful one.
    tries: usize,
    /// The handler whose codec has last prepared.
    prepared: Option<HandlerId>,
    /// The handlers whose codecs have shown that they can never decode it, and why.
    undecodable: Vec<(HandlerId, Arc<str>)>,
}

impl Preparation {
    /// No codec has prepared for it.
    pub(super) const fn none() -> Self {
        Self { tries: 0, prepared: None, undecodable: Vec::new() }
    }

    /// Records that a try has ended the preparation for this handler: the codec has what it needs, or has shown that it
    /// can never decode the delivery.
    pub(crate) fn ended(&mut self, handler: HandlerId, tries: usize, undecodable: Option<String>) {
        self.tries = tries;
        self.prepared = Some(handler);
        self.undecodable.extend(undecodable.map(|why| (handler, why.into())));
    }

    /// The number of tries up to the one that has ended the last preparation.
    pub(crate) fn tries(&self) -> usize {
        self.tries
    }

    /// Returns whether the codec of this handler was the last to prepare.
    pub(crate) fn was_for(&self, handler: HandlerId) -> bool {
        self.prepared == Some(handler)
    }

    /// Returns why the codec of this handler can never decode the delivery, if that is known.
    pub(crate) fn undecodable(&self, handler: HandlerId) -> Option<&str> {
        self.undecodable.iter().find(|(of, _)| *of == handler).map(|(_, why)| &**why)
    }
}
