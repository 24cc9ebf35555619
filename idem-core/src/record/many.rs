//! Takes several messages over in one transaction.

use std::time::Duration;

use uuid::Uuid;

use crate::runtime::{Pipeline, Progress};
use crate::store::{ClaimState, Claimed, ExistingClaim, Identity, NewRow, StoreError};
use crate::{Delivery, Reason, Store};

use super::classify::Classified;

/// A message whose key is known.
pub(crate) struct Known {
    pub(crate) delivery: Box<Delivery>,
    pub(crate) identity: Identity,
}

impl Known {
    /// Returns the sort key of a message, so that all transactions claim in the same order.
    pub(crate) fn place(&self) -> (i32, &[u8]) {
        (self.identity.handler.0, self.identity.key.as_bytes())
    }

    /// Returns its row, which is due now. `provider_key`: the key of the external call that its handler makes first.
    fn row(&self, provider_key: Option<Uuid>) -> NewRow<'_> {
        let row = NewRow::new(&self.identity, &self.delivery, Ok(Duration::ZERO));
        match provider_key {
            Some(provider_key) => row.with_call(provider_key),
            None => row,
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Claims sorted messages, and classifies each. They may contain duplicates: the first message of a key claims it,
    /// and the others are classified by that claim. Also writes the rows of conflicts and counts duplicates, in the
    /// same transaction; without an order, also makes their rows due.
    async fn classify_many(
        &self,
        txn: &mut S::Txn,
        messages: &[&Known],
        state: ClaimState,
    ) -> Result<Vec<Classified>, StoreError> {
        let groups: Vec<&[&Known]> = messages.chunk_by(|one, next| one.place() == next.place()).collect();
        let firsts: Vec<&Identity> = groups.iter().map(|group| &group[0].identity).collect();
        let claimed = self.store.claim(txn, &firsts, state).await?;
        let is_found = |at: &usize| !claimed[*at].is_new();
        let found: Vec<&Identity> = (0..firsts.len()).filter(is_found).map(|at| firsts[at]).collect();
        let existing = if found.is_empty() { Vec::new() } else { self.store.existing_claims(txn, &found).await? };
        let mut existing = existing.into_iter();

        let (mut answers, mut duplicates) = (Vec::with_capacity(messages.len()), Vec::new());
        for (group, claimed) in groups.into_iter().zip(claimed) {
            let new = claimed.is_new();
            let claim = if new { Some(made(&group[0].identity)) } else { existing.next().flatten() };
            for (at, Known { delivery, identity }) in group.iter().enumerate() {
                // The first message of a key has claimed it, and the others find that claim.
                let claimed = if at == 0 && new { claimed } else { Claimed::Found(claim) };
                let mut classified = self.classify((identity, delivery), claimed);
                match &mut classified {
                    // A duplicate of a claim that was just made is not counted: its row is not a dead letter.
                    Classified::Duplicate(None) if !new => duplicates.push(identity),
                    Classified::Conflict(dead) => {
                        self.insert_dead(txn, (identity, delivery), Reason::Conflict, dead).await?;
                    }
                    _ => {}
                }
                answers.push(classified);
            }
        }
        if !duplicates.is_empty() {
            self.store.count_duplicates(txn, &duplicates).await?;
        }
        Ok(answers)
    }

    /// Stores sorted messages in the inbox, in one transaction: claims first, then rows. On error, returns the
    /// [`Progress`] that holds all of them.
    pub(crate) async fn store_many(&self, messages: &[&Known]) -> Result<Vec<Classified>, Progress> {
        let mut txn =
            self.store.begin(self.settings.handler_timeout).await.map_err(|fault| self.outage.hold_for(fault))?;
        let kept = self.insert_claims_and_rows(&mut txn, messages).await;
        let kept = self.commit_written(txn, kept).await?;
        if kept.contains(&Classified::New) {
            self.wake_inbox();
        }
        Ok(kept)
    }

    /// Claims sorted messages, and inserts the rows of those that are new.
    pub(super) async fn insert_claims_and_rows(
        &self,
        txn: &mut S::Txn,
        messages: &[&Known],
    ) -> Result<Vec<Classified>, StoreError> {
        let mut classified = self.classify_many(txn, messages, ClaimState::Waiting).await?;
        let mut rows = Vec::with_capacity(messages.len());
        for (message, classified) in messages.iter().zip(&mut classified) {
            match classified {
                Classified::New => {
                    rows.push(message.row(self.routes.first_provider_key(&message.identity, &message.delivery)));
                }
                // One by one, because their ids are logged; they are rare.
                Classified::TooOld(dead) => {
                    self.insert_dead(txn, (&message.identity, &message.delivery), Reason::TooOld, dead).await?;
                }
                _ => {}
            }
        }
        if !rows.is_empty() {
            self.store.insert(txn, &rows).await?;
        }
        Ok(classified)
    }
}

/// Returns the claim that the current transaction made for this message. A duplicate of the message waits with it.
fn made(identity: &Identity) -> ExistingClaim {
    ExistingClaim { fingerprint: identity.fingerprint, age: None }
}
