//! The input of an extractor.

use std::cell::OnceCell;

use crate::outbox::Outbox;
use crate::store::{HandlerId, LatestVersions};
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
    /// The latest versions of the handler, if it takes them.
    pub(crate) latest: Option<(&'a LatestVersions, HandlerId)>,
}

impl<'a, S> Extraction<'a, S> {
    pub(crate) fn new(
        delivery: &'a Delivery,
        key: &'a Key,
        state: &'a S,
        latest: Option<(&'a LatestVersions, HandlerId)>,
    ) -> Self {
        Self { delivery, key, state, outbox: OnceCell::new(), latest }
    }
}
