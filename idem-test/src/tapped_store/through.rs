//! The parameters of a handler of a tapped store.

use std::marker::PhantomData;

use idem_core::__private::ErasedCall;
use idem_core::{BoxError, Extract, Extraction, Param};

use super::StoreTap;

/// The parameters `P` of a handler. If one of them has the answer of an external call, that runs by the tap `T`.
#[derive(Debug)]
pub struct Through<P, T> {
    params: P,
    tap: PhantomData<fn() -> T>,
}

impl<P, T> Through<P, T> {
    /// Returns the parameters.
    pub(super) fn into_params(self) -> P {
        self.params
    }
}

impl<P: Param, T: StoreTap> Param for Through<P, T> {
    const STAGES: bool = P::STAGES;
    const NEEDS_CALL: bool = P::NEEDS_CALL;
    const CALLS: usize = P::CALLS;
}

impl<S, P: Extract<S>, T: StoreTap> Extract<S> for Through<P, T> {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        P::extract(from).map(|params| Self { params, tap: PhantomData })
    }

    fn external() -> Option<ErasedCall<S>> {
        P::external().map(|call| call.tapped(|calling| Box::pin(T::call(calling))))
    }
}
