//! What the database takes over of a message, and what becomes of it there.

use std::borrow::Cow;

use tracing::Span;

use crate::registry::NoJob;
use crate::routes::Route;
use crate::run::Failure;
use crate::runtime::{Ended, Pipeline};
use crate::store::{HandlerId, Identity, Row};
use crate::telemetry::Meters;
use crate::{Delivery, Fingerprint, Key, Outcome, Reason, Store, telemetry};

use super::classify::Classified;

/// What one handler keeps of a message in one commit: its claim and its row.
pub(crate) struct Entry<'a> {
    /// The key is empty for a message that can never be passed to the handler. Such a message has no claim.
    pub(crate) identity: Identity,
    pub(crate) delivery: &'a Delivery,
    /// The state of the row.
    pub(crate) failure: Cow<'a, Failure>,
    /// The replayed row without a key that is removed in the same commit.
    pub(crate) replaces: Option<&'a Row>,
    /// The span of its log lines; none: the current one.
    pub(crate) span: Span,
}

impl<'a> Entry<'a> {
    fn new(identity: Identity, delivery: &'a Delivery, failure: Cow<'a, Failure>) -> Self {
        Self { identity, delivery, failure, replaces: None, span: Span::none() }
    }

    /// A message that has not failed. Its row is due now.
    pub(crate) fn due(identity: Identity, delivery: &'a Delivery) -> Self {
        Self::new(identity, delivery, Cow::Owned(Failure::none()))
    }

    /// A message with this failure.
    pub(crate) fn failed(identity: Identity, delivery: &'a Delivery, failure: &'a Failure) -> Self {
        Self::new(identity, delivery, Cow::Borrowed(failure))
    }

    /// A message that can never be passed to this handler. It is known by the hash of everything that makes it up.
    fn unfit(handler: HandlerId, delivery: &'a Delivery, failure: Failure) -> Self {
        let identity = Identity { handler, key: Key::empty(), fingerprint: Fingerprint::of_keyless(delivery) };
        Self::new(identity, delivery, Cow::Owned(failure))
    }
}

/// What became of an entry in the transaction.
pub(crate) struct Taken {
    pub(crate) classified: Classified,
    /// The row that was written for it.
    pub(crate) row: Option<i64>,
}

impl Taken {
    /// A message that nothing is known about.
    pub(crate) fn new() -> Self {
        Classified::New.into()
    }

    /// Returns what becomes of a message that was found so in a transaction that has committed, and counts the age of a duplicate.
    pub(crate) fn ended(&self, meters: &Meters) -> Ended {
        match self.classified.outcome(meters) {
            Some(outcome) => Ended::Done(outcome),
            None if self.classified == Classified::New => Ended::Done(Outcome::Processed),
            None => Ended::Lost,
        }
    }

    /// Logs that the message, which has failed this often, is dead by its claim alone, after that was committed.
    pub(crate) fn tell(&self, attempts: u32) {
        match &self.classified {
            Classified::TooOld(error) => telemetry::tell(self.row, attempts, Err(Reason::TooOld), error),
            Classified::Conflict(error) => telemetry::tell(self.row, 0, Err(Reason::Conflict), error),
            Classified::New | Classified::Duplicate(_) | Classified::Gone => {}
        }
    }
}

impl From<Classified> for Taken {
    fn from(classified: Classified) -> Self {
        Self { classified, row: None }
    }
}

/// The outcome of a delivery for each of several handlers, which have taken it over.
pub(crate) struct Shared {
    pub(crate) outcomes: Vec<(Identity, Outcome)>,
    /// Whether no handler had taken the message before.
    pub(crate) is_new: bool,
}

impl<S: Store> Pipeline<S> {
    /// Returns the entry of a delivery that can never be passed to a handler.
    pub(crate) fn unfit<'a>(&self, delivery: &'a Delivery, failure: Failure) -> Entry<'a> {
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| {
            Span::current().record("idem.handler", route.handler.facts().name);
            route.id
        });
        Entry::unfit(handler, delivery, failure)
    }

    /// Decodes a delivery and computes its key for each of these handlers. Returns their entries, in claim order: a message
    /// that one of them cannot take still reaches the others. A handler whose codec has to prepare first has no entry, and then
    /// the second value is true.
    pub(crate) fn shares<'a>(&self, delivery: &'a Delivery, routes: &[&Route<S>]) -> (Vec<Entry<'a>>, bool) {
        let (mut entries, mut is_unprepared) = (Vec::with_capacity(routes.len()), false);
        for route in routes {
            match self.limit(delivery).map_err(NoJob::from).and_then(|()| self.decode_for(route, delivery)) {
                Ok(work) => entries.push(Entry::due(work.identity, delivery)),
                Err(NoJob::Unfit(unfit)) => entries.push(Entry::unfit(route.id, delivery, Failure::unfit(unfit))),
                Err(NoJob::Unprepared) => is_unprepared = true,
            }
        }
        entries.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        (entries, is_unprepared)
    }
}
