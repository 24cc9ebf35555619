//! The result of the codec's preparation for a delivery.

use std::sync::Arc;

/// The result of the codec's preparation for a delivery, in this process.
#[derive(Debug, Clone, Default)]
pub(crate) enum Preparation {
    /// The codec has not requested it.
    #[default]
    None,
    /// The last of this many tries has succeeded.
    Done(usize),
    /// It has shown that the delivery can never be decoded.
    Undecodable(Arc<str>),
}

impl Preparation {
    /// The number of tries up to the successful one.
    pub(crate) fn tries(&self) -> usize {
        if let Self::Done(tries) = self { *tries } else { 0 }
    }
}
