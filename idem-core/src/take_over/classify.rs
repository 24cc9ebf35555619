//! Classifies messages by the claim of their key: the rules that single deliveries, batches and the inbox share.

use std::time::{Duration, SystemTime};

use crate::routes::Route;
use crate::runtime::Pipeline;
use crate::store::{Claimed, Identity, StoreError};
use crate::telemetry::Meters;
use crate::{Delivery, Outcome, Reason, Store};

/// The classification of a message by the claim of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Classified {
    /// The current transaction has inserted its claim.
    New,
    /// As `New`, but whether the message was processed before is unknown, with the text of the dead letter.
    TooOld(String),
    /// A duplicate of the message that holds the claim, with the time since that was processed (`None`: it is in the
    /// inbox).
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
                 content; `Inbox::replay_as` runs it under another key",
                identity.key
            );
            Classified::Conflict(error)
        }
    }
}

impl Classified {
    /// Returns the outcome of the message after the transaction has committed; `None` if that depends on more than its
    /// claim.
    pub(crate) fn outcome(&self, meters: &Meters) -> Option<Outcome> {
        match self {
            Self::New | Self::Gone => None,
            Self::TooOld(_) => Some(Outcome::Dead { reason: Reason::TooOld }),
            Self::Conflict(_) => Some(Outcome::Dead { reason: Reason::Conflict }),
            Self::Duplicate(age) => {
                age.iter().for_each(|age| meters.duplicate_age.record(*age));
                Some(Outcome::Duplicate)
            }
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Begins the transaction of a single delivery with its claim, and classifies the message; or without one, if its handler is
    /// natural and there is no order: then it is new. On an error, none is open.
    pub(crate) async fn begin_first(
        &self,
        route: &Route<S>,
        message: (&Identity, &Delivery),
    ) -> Result<(S::Txn, Classified), StoreError> {
        let claim = (!route.is_unclaimed).then_some(message.0);
        let (txn, claimed) = self.store.begin_first(route.timeout, claim).await?;
        Ok((txn, claim.map_or(Classified::New, |_| self.classify(message, claimed))))
    }

    /// Calls [`classify`] with the pruning cutoff of the message's handler.
    pub(crate) fn classify(&self, (identity, delivery): (&Identity, &Delivery), claimed: Claimed) -> Classified {
        classify(identity, claimed, |through| self.routes.too_old(identity.handler, delivery, through))
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
                    `fingerprint = ..` of its content; `Inbox::replay_as` runs it under another key";
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
    fn the_claim_decides_the_outcome_of_a_message_that_does_not_run() {
        let meters = Meters::new("billing", "orders");
        let dead = |reason| Some(Outcome::Dead { reason });
        let table = [
            (Classified::New, None),
            (Classified::Gone, None),
            (Classified::TooOld(String::new()), dead(Reason::TooOld)),
            (Classified::Conflict(String::new()), dead(Reason::Conflict)),
            (Classified::Duplicate(None), Some(Outcome::Duplicate)),
            (Classified::Duplicate(Some(AGE)), Some(Outcome::Duplicate)),
        ];
        for (classified, outcome) in table {
            assert_eq!(classified.outcome(&meters), outcome, "{classified:?}");
        }
    }
}
