//! Takes messages over without processing them: what has failed, what is dead, and what is stored before it runs.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the claims and rows of entries |
//! | `entry` | what the database takes over of a message, and what becomes of it there |
//! | `store` | the transaction of entries, and what follows from its end |
//! | `classify` | classifies a message by the claim of its key |
//! | `claim` | the claim of a first delivery |

mod claim;
mod classify;
mod entry;
mod store;

use std::time::Duration;

use crate::runtime::Pipeline;
use crate::store::{ClaimState, Claimed, ExistingClaim, Identity, NewRow, StoreError};
use crate::{Delivery, Reason, Store};

pub(crate) use classify::Classified;
pub(crate) use entry::{Entry, Shared, Taken};

impl<S: Store> Pipeline<S> {
    /// Claims messages, and writes the rows of those that are new. They are sorted by handler and key, and no two without a
    /// key have the same handler and fingerprint.
    ///
    /// Nothing is written for a message whose claim [is gone](Classified::Gone).
    async fn take_over(&self, txn: &mut S::Txn, entries: &[Entry<'_>]) -> Result<Vec<Taken>, StoreError> {
        let keyed: Vec<&Entry<'_>> = entries.iter().filter(|entry| entry.identity.has_key()).collect();
        let claimed = if keyed.is_empty() { Vec::new() } else { self.insert_claims(txn, &keyed).await? };
        let mut claimed = claimed.into_iter();
        let of_entry = |entry: &Entry<'_>| if entry.identity.has_key() { claimed.next() } else { Some(Taken::new()) };
        let mut taken: Vec<Taken> = entries.iter().filter_map(of_entry).collect();

        let rows = entries.iter().zip(&taken).filter_map(|(entry, taken)| self.row(entry, &taken.classified));
        let rows: Vec<NewRow<'_>> = rows.collect();
        if rows.is_empty() {
            return Ok(taken);
        }
        let mut ids = self.store.insert(txn, &rows).await?.into_iter();
        let written =
            taken.iter_mut().filter(|taken| matches!(taken.classified, Classified::New | Classified::TooOld(_)));
        written.for_each(|taken| taken.row = ids.next());
        Ok(taken)
    }

    /// Claims sorted messages, and classifies each. They may contain duplicates: the first message of a key claims it,
    /// and the others are classified by that claim. Also writes the rows of conflicts, in the same transaction.
    async fn insert_claims(&self, txn: &mut S::Txn, entries: &[&Entry<'_>]) -> Result<Vec<Taken>, StoreError> {
        let groups: Vec<&[&Entry<'_>]> =
            entries.chunk_by(|one, next| one.identity.place() == next.identity.place()).collect();
        let firsts: Vec<&Identity> = groups.iter().map(|group| &group[0].identity).collect();
        let claimed = self.store.claim(txn, &firsts, ClaimState::Waiting).await?;
        let is_found = |at: &usize| !claimed[*at].is_new();
        let found: Vec<&Identity> = (0..firsts.len()).filter(is_found).map(|at| firsts[at]).collect();
        let existing = match (entries, &found[..]) {
            (_, []) => Vec::new(),
            // A copy of a processed message needs no lock, and so no write.
            ([_], [one]) => match self.store.existing_claims(txn, &found, false).await?.pop().flatten() {
                Some(claim) if claim.age.is_some() && one.is_copy(claim.fingerprint) => vec![Some(claim)],
                _ => self.store.existing_claims(txn, &found, true).await?,
            },
            _ => self.store.existing_claims(txn, &found, true).await?,
        };
        let mut existing = existing.into_iter();

        let mut all = Vec::with_capacity(entries.len());
        for (group, claimed) in groups.into_iter().zip(claimed) {
            let new = claimed.is_new();
            let claim = if new { Some(made(&group[0].identity)) } else { existing.next().flatten() };
            for (at, Entry { identity, delivery, .. }) in group.iter().enumerate() {
                // The first message of a key has claimed it, and the others find that claim.
                let claimed = if at == 0 && new { claimed } else { Claimed::Found(claim) };
                let mut taken = Taken::from(self.classify((identity, delivery), claimed));
                // One by one, because several of them may be copies of each other, which are one row.
                if let Classified::Conflict(error) = &taken.classified {
                    taken.row = self.insert_conflict(txn, (identity, delivery), error).await?;
                }
                all.push(taken);
            }
        }
        Ok(all)
    }

    /// Returns the row of a message that is new, also if it is too old.
    fn row<'r>(&self, entry: &'r Entry<'_>, classified: &'r Classified) -> Option<NewRow<'r>> {
        let Entry { identity, delivery, failure, .. } = entry;
        let (state, error) = match classified {
            // A message that is already dead keeps its reason.
            Classified::TooOld(error) if failure.next.is_ok() => (Err(Reason::TooOld), error),
            Classified::New | Classified::TooOld(_) => (failure.next, &failure.error),
            Classified::Duplicate(_) | Classified::Conflict(_) | Classified::Gone => return None,
        };
        let row = NewRow::new(identity, delivery, state).with_attempts(failure.attempts, error);
        if !identity.has_key() {
            return Some(row);
        }
        Some(match self.routes.first_provider_key(identity, delivery) {
            Some(provider_key) if state == Ok(Duration::ZERO) => row.with_call(provider_key),
            Some(provider_key) => row.with_provider_key(provider_key),
            None => row,
        })
    }

    /// Writes the row of a message whose key another message has claimed.
    async fn insert_conflict(
        &self,
        txn: &mut S::Txn,
        (identity, delivery): (&Identity, &Delivery),
        error: &str,
    ) -> Result<Option<i64>, StoreError> {
        let row = NewRow::new(identity, delivery, Err(Reason::Conflict)).with_attempts(0, error);
        Ok(self.store.insert(txn, &[row]).await?.pop())
    }
}

/// Returns the claim that the current transaction made for this message. A duplicate of the message waits with it.
fn made(identity: &Identity) -> ExistingClaim {
    ExistingClaim { fingerprint: identity.fingerprint, age: None }
}
