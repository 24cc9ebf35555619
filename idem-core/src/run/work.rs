//! A message that can run.

use std::time::Duration;

use crate::registry::Job;
use crate::routes::Route;
use crate::store::{Identity, Row};
use crate::{Delivery, Store};

/// A message that can run: its handler and its key are known. All that run together are deliveries, or all are rows.
pub(crate) struct Work<'a, S: Store> {
    /// Its index among the deliveries or rows that its caller has collected, in the order of their arrival.
    pub(crate) at: usize,
    pub(crate) delivery: &'a Delivery,
    /// Its row, if it runs from the inbox. It has a claim already; a delivery is claimed by its run.
    pub(crate) row: Option<&'a Row>,
    pub(crate) route: &'a Route<S>,
    pub(crate) identity: Identity,
    /// `None` before it is decoded, and once a transaction has taken it.
    pub(crate) job: Option<Box<dyn Job<S>>>,
    /// For how long a row had been due when it was taken. `None` for a delivery, and once a run by itself has measured the rest.
    pub(crate) waited: Option<Duration>,
}

impl<'a, S: Store> Work<'a, S> {
    /// A delivery that was decoded.
    pub(crate) fn new(route: &'a Route<S>, identity: Identity, delivery: &'a Delivery, job: Box<dyn Job<S>>) -> Self {
        Self { at: 0, delivery, row: None, route, identity, job: Some(job), waited: None }
    }

    /// A row that was taken from the inbox, and is not decoded yet.
    pub(crate) fn of_row(route: &'a Route<S>, row: &'a Row) -> Self {
        let identity = row.identity.clone();
        Self { at: 0, delivery: &row.delivery, row: Some(row), route, identity, job: None, waited: row.waited }
    }

    /// Returns the message.
    pub(super) fn message(&self) -> (&Identity, &'a Delivery) {
        (&self.identity, self.delivery)
    }
}
