//! The input of an extractor.

use std::cell::OnceCell;

use crate::outbox::Outbox;
use crate::{Delivery, Key};

/// The input of an extractor, see [`Extract`](crate::Extract).
#[derive(Debug)]
#[non_exhaustive]
pub struct Extraction<'a, S> {
    /// The current delivery.
    pub delivery: &'a Delivery,
    /// The key of the delivery.
    pub key: &'a Key,
    /// The state of the worker.
    pub state: &'a S,
    /// The outbox of this run, made when it is first extracted.
    pub(crate) outbox: OnceCell<Outbox>,
}

impl<'a, S> Extraction<'a, S> {
    pub(crate) fn new(delivery: &'a Delivery, key: &'a Key, state: &'a S) -> Self {
        Self { delivery, key, state, outbox: OnceCell::new() }
    }
}
