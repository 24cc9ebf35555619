//! A delivery of a batch that can run.

use crate::registry::{Job, Route};
use crate::store::Identity;
use crate::worker::Flight;

/// A delivery of a batch that can run, and how often it has made a round fail.
pub(super) struct Item<'a, S> {
    /// Its place among the deliveries of the batch.
    pub(super) at: usize,
    pub(super) route: &'a Route<S>,
    pub(super) identity: Identity,
    /// Taken by its run; decoded anew for another one.
    pub(super) job: Option<Box<dyn Job<S>>>,
    /// Copies in the same batch: they have the verdict of this one.
    pub(super) copies: Vec<usize>,
    /// Keeps other deliveries of the key in this process out, for as long as the batch is worked on.
    pub(super) _flight: Flight,
}

/// What one delivery of a batch came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The database has answered.
    Done(crate::Outcome),
    /// It has to be taken alone: nobody but itself is charged with what becomes of it there.
    Alone,
    /// The connection was lost with it, so that it goes by way of the inbox, alone.
    Broke,
    /// The worker stops.
    Stopped,
}
