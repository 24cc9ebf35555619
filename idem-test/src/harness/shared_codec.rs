//! A codec that several workers have.

use std::fmt;
use std::sync::Arc;

use idem_core::{Codec, DecodeError, Delivery, PrepareError};

/// A codec that several workers have.
pub struct Shared<C>(pub(super) Arc<C>);

impl<C> fmt::Debug for Shared<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl<M, C: Codec<M>> Codec<M> for Shared<C> {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        self.0.decode(delivery)
    }

    fn tombstone(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        self.0.tombstone(delivery)
    }

    async fn prepare(&self, delivery: &Delivery) -> Result<(), PrepareError> {
        self.0.prepare(delivery).await
    }
}
