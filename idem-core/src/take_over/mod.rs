//! Takes messages over without processing them: what has failed, what is dead, and what is stored before it runs.
//!
//! | file | contents |
//! |---|---|
//! | this one | classifies messages by the claims of their keys; entries: what the database takes over of a message |
//! | `store` | the transaction of entries, and what follows from its end |

mod store;

use std::time::{Duration, SystemTime};

use tracing::Span;

use crate::registry::NoJob;
use crate::routes::Route;
use crate::run::Failure;
use crate::runtime::{Ended, Pipeline};
use crate::store::{ClaimState, Claimed, ExistingClaim, HandlerId, Identity, NewRow, Row, StoreError};
use crate::telemetry::Meters;
use crate::{Delivery, Fingerprint, Key, Outcome, Reason, Store};

/// The classification of a message by the claim of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Classified {
    /// The current transaction has inserted its claim.
    New,
    /// As `New`, but whether the message was processed before is unknown, with the text of the dead letter.
    TooOld(String),
    /// A duplicate of the message that holds the claim, with the time since that was processed (`None`: it is in the
    /// inbox, scheduled or dead).
    Duplicate(Option<Duration>),
    /// Another message holds the claim, with the text of the dead letter.
    Conflict(String),
    /// The claim was removed meanwhile; start over. Of an inbox row: its lease was lost.
    Gone,
}

/// Classifies a message by the result of its claim. Calls `too_old` only if the claim is new.
pub(crate) fn classify(
    identity: &Identity,
    claimed: Claimed,
    too_old: impl FnOnce(Option<SystemTime>) -> Option<String>,
) -> Classified {
    match claimed {
        Claimed::New { pruned_through } => match too_old(pruned_through) {
            Some(error) => Classified::TooOld(error),
            None => Classified::New,
        },
        Claimed::Found(None) => Classified::Gone,
        Claimed::Found(Some(claim)) if identity.is_copy(claim.fingerprint) => Classified::Duplicate(claim.age),
        Claimed::Found(Some(_)) => {
            let error = format!(
                "another message was already claimed under the key {}: use the id of the event as the key, not of its entity. If \
                 it is the same event in other bytes (compressed or serialized again), give the handler a `fingerprint = ..` of its \
                 content; `idem dead replay ID --as KEY` runs it under another key",
                identity.key
            );
            Classified::Conflict(error)
        }
    }
}

impl Classified {
    /// Returns what becomes of a message that was found so in a transaction that has committed, and that needs no row.
    pub(crate) fn ended(&self, meters: &Meters) -> Ended {
        match self {
            Self::New => Ended::Done(Outcome::Processed),
            Self::Duplicate(_) => Ended::Done(self.duplicate(meters)),
            Self::TooOld(_) | Self::Conflict(_) | Self::Gone => Ended::Lost,
        }
    }

    /// Returns the outcome of a duplicate, and counts its age.
    fn duplicate(&self, meters: &Meters) -> Outcome {
        if let Self::Duplicate(Some(age)) = self {
            meters.duplicate_age.record(*age);
        }
        Outcome::Duplicate
    }
}

/// What one handler keeps of a message in one commit: its claim and its row.
pub(crate) struct Entry<'a> {
    /// The key is empty for a message that can never be passed to the handler. Such a message has no claim.
    pub(crate) identity: Identity,
    pub(crate) delivery: &'a Delivery,
    /// The state of the row.
    pub(crate) failure: Failure,
    /// The replayed row without a key that is removed in the same commit.
    pub(crate) replaces: Option<&'a Row>,
    /// The span of its log lines; none: the current one.
    pub(crate) span: Span,
}

impl<'a> Entry<'a> {
    /// A message with this failure.
    pub(crate) fn new(identity: Identity, delivery: &'a Delivery, failure: Failure) -> Self {
        Self { identity, delivery, failure, replaces: None, span: Span::none() }
    }

    /// A message that has not failed. Its row is due now.
    pub(crate) fn due(identity: Identity, delivery: &'a Delivery) -> Self {
        Self::new(identity, delivery, Failure::new(Ok(Duration::ZERO), ""))
    }

    /// A message that can never be passed to this handler. It is known by the hash of everything that makes it up.
    fn undeliverable(handler: HandlerId, delivery: &'a Delivery, failure: Failure) -> Self {
        let identity = Identity { handler, key: Key::empty(), fingerprint: Fingerprint::of_keyless(delivery) };
        Self::new(identity, delivery, failure)
    }

    /// Returns what is written of a message that was found so: its attempts, its state and its error. `None`: it needs no row.
    fn written<'e>(&'e self, found: &'e Classified) -> Option<(u32, Result<Duration, Reason>, &'e str)> {
        let Failure { attempts, next, error, .. } = &self.failure;
        match found {
            Classified::Conflict(error) => Some((0, Err(Reason::Conflict), error.as_str())),
            // A message that is already dead keeps its reason.
            Classified::TooOld(error) if next.is_ok() => Some((*attempts, Err(Reason::TooOld), error.as_str())),
            Classified::New | Classified::TooOld(_) => Some((*attempts, *next, error.as_str())),
            Classified::Duplicate(_) | Classified::Gone => None,
        }
    }
}

/// What became of an entry in the transaction.
struct Written {
    classified: Classified,
    /// The row that was written for it.
    row: Option<i64>,
}

/// The outcome of a delivery for each of several handlers, which have taken it over.
pub(crate) struct Shared {
    pub(crate) outcomes: Vec<(Identity, Outcome)>,
    /// Whether no handler had taken the message before.
    pub(crate) is_new: bool,
}

impl<S: Store> Pipeline<S> {
    /// Claims messages, and classifies each by its claim. One that has no key is new, and so is one of a natural handler that now
    /// runs. They are sorted by handler and key, and no two have the same key.
    pub(crate) async fn claims(
        &self,
        txn: &mut S::Txn,
        messages: &[(&Identity, &Delivery)],
        state: ClaimState,
    ) -> Result<Vec<Classified>, StoreError> {
        let runs = state == ClaimState::Processed;
        let is_claimed = |id: &Identity| id.has_key() && !(runs && self.routes.is_unclaimed(id.handler));
        let all = messages.iter().map(|(identity, _)| *identity);
        let claiming: Vec<&Identity> = all.filter(|identity| is_claimed(identity)).collect();
        let mut claimed = Vec::new();
        if !claiming.is_empty() {
            claimed = self.store.claim(txn, &claiming, state).await?;
        }
        // What a store has read with the claim is enough for those that run: nothing is written beside it.
        let is_sought = |claimed: &Claimed| if runs { *claimed == Claimed::Found(None) } else { !claimed.is_new() };
        let old = claiming.iter().zip(&claimed).filter(|(_, claimed)| is_sought(claimed));
        let sought: Vec<&Identity> = old.map(|(identity, _)| *identity).collect();
        let mut known = Vec::new();
        if !sought.is_empty() {
            known = self.store.existing_claims(txn, &sought, false).await?;
            let is_copy = |(one, claim): (&&Identity, &Option<ExistingClaim>)| {
                claim.is_some_and(|claim| one.is_copy(claim.fingerprint))
            };
            // A conflict is written beside its claim, which must not be pruned before that. A copy needs no lock, and so no write.
            if !runs && !sought.iter().zip(&known).all(is_copy) {
                known = self.store.existing_claims(txn, &sought, true).await?;
            }
        }
        if runs && claiming.len() < messages.len() {
            // All claims may be duplicates, and then none of them guards the transaction.
            self.store.claim(txn, &[], state).await?;
        }
        let (mut claimed, mut known) = (claimed.into_iter(), known.into_iter());
        let found = |message: &(&Identity, &Delivery)| {
            if !is_claimed(message.0) {
                return Some(Classified::New);
            }
            let claimed = claimed.next()?;
            let claimed = if is_sought(&claimed) { Claimed::Found(known.next().flatten()) } else { claimed };
            Some(self.classify(*message, claimed))
        };
        Ok(messages.iter().filter_map(found).collect())
    }

    /// Calls [`classify`] with the pruning cutoff of the message's handler.
    pub(crate) fn classify(&self, (identity, delivery): (&Identity, &Delivery), claimed: Claimed) -> Classified {
        classify(identity, claimed, |through| self.routes.too_old(identity.handler, delivery, through))
    }

    /// Returns the entry of a delivery that can never be passed to a handler.
    pub(crate) fn undeliverable<'a>(&self, delivery: &'a Delivery, failure: Failure) -> Entry<'a> {
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| {
            Span::current().record("idem.handler", route.handler.facts().name);
            route.id
        });
        Entry::undeliverable(handler, delivery, failure)
    }

    /// Decodes a delivery and computes its key for each of these handlers. Returns their entries, in claim order: a message
    /// that one of them cannot take still reaches the others. A handler whose codec has to prepare first has no entry, and then
    /// the second value is true.
    pub(crate) fn shares<'a>(&self, delivery: &'a Delivery, routes: &[&Route<S>]) -> (Vec<Entry<'a>>, bool) {
        let (mut entries, mut is_unprepared) = (Vec::with_capacity(routes.len()), false);
        for route in routes {
            match self.limit(delivery).map_err(NoJob::from).and_then(|()| self.decode_for(route, delivery)) {
                Ok(work) => entries.push(Entry::due(work.identity, delivery)),
                Err(NoJob::Undeliverable(undeliverable)) => {
                    entries.push(Entry::undeliverable(route.id, delivery, Failure::undeliverable(undeliverable)))
                }
                Err(NoJob::Unprepared) => is_unprepared = true,
            }
        }
        entries.sort_by(|one, other| one.identity.sort_key().cmp(&other.identity.sort_key()));
        (entries, is_unprepared)
    }

    /// Claims messages, and writes the rows of those that are new, too old or conflicts. They are sorted by
    /// handler and key, no two have the same key, and no two without a key have the same handler and fingerprint.
    ///
    /// Nothing is written for a message whose claim [is gone](Classified::Gone).
    async fn claim_and_insert(&self, txn: &mut S::Txn, entries: &[Entry<'_>]) -> Result<Vec<Written>, StoreError> {
        let messages: Vec<_> = entries.iter().map(|entry| (&entry.identity, entry.delivery)).collect();
        let found = self.claims(txn, &messages, ClaimState::Waiting).await?;
        let mut taken: Vec<Written> = found.into_iter().map(|classified| Written { classified, row: None }).collect();
        let rows = entries.iter().zip(&taken).filter_map(|(entry, taken)| self.row(entry, &taken.classified));
        let rows: Vec<NewRow<'_>> = rows.collect();
        if rows.is_empty() {
            return Ok(taken);
        }
        let mut ids = self.store.insert(txn, &rows).await?.into_iter();
        let has_row = |taken: &&mut Written| !matches!(taken.classified, Classified::Duplicate(_) | Classified::Gone);
        taken.iter_mut().filter(has_row).for_each(|taken| taken.row = ids.next());
        Ok(taken)
    }

    /// Returns the row of a message that is new, too old, or a conflict.
    fn row<'r>(&self, entry: &'r Entry<'_>, classified: &'r Classified) -> Option<NewRow<'r>> {
        let Entry { identity, delivery, .. } = entry;
        let (attempts, state, error) = entry.written(classified)?;
        let row = NewRow::new(identity, delivery, state).with_attempts(attempts, error);
        // The call of a conflict's key is that of the other message.
        if !identity.has_key() || matches!(classified, Classified::Conflict(_)) {
            return Some(row);
        }
        Some(match self.routes.first_provider_key(identity, delivery) {
            Some(provider_key) if state == Ok(Duration::ZERO) => row.with_call(provider_key),
            Some(provider_key) => row.with_provider_key(provider_key),
            None => row,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{ExistingClaim, HandlerId};
    use crate::{Fingerprint, Key};

    const AGE: Duration = Duration::from_secs(7);

    fn claim(payload: &[u8], age: Option<Duration>) -> Claimed {
        Claimed::Found(Some(ExistingClaim { fingerprint: Fingerprint::of(payload), age }))
    }

    #[test]
    fn a_message_is_what_its_claim_says() {
        let identity =
            Identity { handler: HandlerId(1), key: Key::of("a").unwrap(), fingerprint: Fingerprint::of(b"ours") };
        let new = Claimed::New { pruned_through: None };
        let pruned = Claimed::New { pruned_through: Some(SystemTime::UNIX_EPOCH) };
        let old = || Classified::TooOld("old".to_owned());
        let text = "another message was already claimed under the key a: use the id of the event as the key, not of its \
                    entity. If it is the same event in other bytes (compressed or serialized again), give the handler a \
                    `fingerprint = ..` of its content; `idem dead replay ID --as KEY` runs it under another key";
        let conflict = || Classified::Conflict(text.to_owned());
        let by_recipe =
            |age| Claimed::Found(Some(ExistingClaim { fingerprint: Fingerprint::of(b"other").by("a"), age }));
        let table = [
            (new, Classified::New),
            (pruned, old()),
            (Claimed::Found(None), Classified::Gone),
            (claim(b"ours", Some(AGE)), Classified::Duplicate(Some(AGE))),
            (claim(b"ours", None), Classified::Duplicate(None)),
            (claim(b"other", Some(AGE)), conflict()),
            (claim(b"other", None), conflict()),
            // From before the handler got its `fingerprint = ..`.
            (by_recipe(Some(AGE)), Classified::Duplicate(Some(AGE))),
            (by_recipe(None), Classified::Duplicate(None)),
        ];
        for (claimed, expected) in table {
            let too_old = |through: Option<SystemTime>| through.map(|_| "old".to_owned());
            assert_eq!(classify(&identity, claimed, too_old), expected, "{claimed:?}");
        }
    }

    #[test]
    fn the_age_of_a_message_is_asked_only_where_its_claim_is_new() {
        let identity =
            Identity { handler: HandlerId(1), key: Key::of("a").unwrap(), fingerprint: Fingerprint::of(b"ours") };
        for claimed in [Claimed::Found(None), claim(b"ours", Some(AGE)), claim(b"other", None)] {
            classify(&identity, claimed, |_| panic!("{claimed:?}"));
        }
    }

    #[test]
    fn the_claim_and_the_failure_decide_what_is_written() {
        let delivery = Delivery::new("orders", "");
        let identity = Identity { handler: HandlerId(1), key: Key::of("a").unwrap(), fingerprint: Fingerprint::none() };
        let (late, permanent): (_, Result<Duration, _>) = (Ok(AGE), Err(Reason::Permanent));
        let [too_old, conflict] = [Err(Reason::TooOld), Err(Reason::Conflict)];
        let table = [
            (Classified::New, late, Some((3, late, "ours"))),
            (Classified::New, permanent, Some((3, permanent, "ours"))),
            (Classified::TooOld("old".to_owned()), late, Some((3, too_old, "old"))),
            (Classified::TooOld("old".to_owned()), permanent, Some((3, permanent, "ours"))),
            (Classified::Conflict("other".to_owned()), late, Some((0, conflict, "other"))),
            (Classified::Conflict("other".to_owned()), permanent, Some((0, conflict, "other"))),
            (Classified::Duplicate(None), permanent, None),
            (Classified::Duplicate(Some(AGE)), late, None),
            (Classified::Gone, late, None),
        ];
        for (classified, next, written) in table {
            let failure = Failure { attempts: 3, ..Failure::new(next, "ours") };
            let entry = Entry::new(identity.clone(), &delivery, failure);
            assert_eq!(entry.written(&classified), written, "{classified:?}, {next:?}");
        }
    }
}
