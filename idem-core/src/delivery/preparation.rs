//! What came of preparing for a delivery.

use std::sync::Arc;

/// What came of the codec's preparation for a delivery, here.
#[derive(Debug, Clone, Default)]
pub(crate) enum Preparation {
    /// The codec has not asked for one.
    #[default]
    None,
    /// The last of so many tries has succeeded.
    Done(usize),
    /// It has shown that the delivery can never be decoded.
    Undecodable(Arc<str>),
}

impl Preparation {
    /// How often it was tried before it succeeded.
    pub(crate) fn tries(&self) -> usize {
        if let Self::Done(tries) = self { *tries } else { 0 }
    }
}
