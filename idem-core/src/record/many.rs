//! Taking several messages over in one transaction.

use std::time::Duration;

use crate::runtime::{Pipeline, Step};
use crate::store::{Claimed, Fault, Identity, NewRow, Promise, Standing};
use crate::{Delivery, Reason, Store};

use super::{Found, Promised, settled};

/// A message of which the key is known.
pub(crate) struct Known {
    pub(crate) delivery: Delivery,
    pub(crate) identity: Identity,
}

impl Known {
    /// What messages are sorted by, so that two transactions claim in the same order.
    pub(crate) fn place(&self) -> (i32, &[u8]) {
        (self.identity.handler.0, self.identity.key.as_bytes())
    }

    /// Its row: due now, or dead, since it is too old for this reason.
    fn row<'a>(&'a self, old: Option<&'a str>) -> NewRow<'a> {
        let state = if old.is_some() { Err(Reason::TooOld) } else { Ok(Duration::ZERO) };
        let error = old.unwrap_or_default();
        NewRow { identity: &self.identity, delivery: &self.delivery, attempts: 0, state, error }
    }
}

/// What became of a message that was to be stored.
pub(crate) enum Kept {
    /// Its row is there, and due.
    Stored,
    /// Its row is a dead letter.
    TooOld,
    Found(Found),
}

impl<S: Store> Pipeline<S> {
    /// Claims for sorted messages, and says of each that it is claimed or what it is. Copies among them may come:
    /// the first of a key claims, and the others are what it makes of them. The transaction holds the answers too.
    pub(crate) async fn promise_many(
        &self,
        txn: &mut S::Txn,
        messages: &[&Known],
        promise: Promise,
    ) -> Result<Vec<Promised>, Fault> {
        let groups: Vec<&[&Known]> = messages.chunk_by(|one, next| one.place() == next.place()).collect();
        let firsts: Vec<&Identity> = groups.iter().map(|group| &group[0].identity).collect();
        let claimed = self.store.claim_many(txn, &firsts, promise).await?;
        let is_found = |at: &usize| claimed[*at] == Claimed::Found;
        let found: Vec<&Identity> = (0..firsts.len()).filter(is_found).map(|at| firsts[at]).collect();
        let standing = if found.is_empty() { Vec::new() } else { self.store.standing_many(txn, &found).await? };
        let mut standing = standing.into_iter();

        let (mut answers, mut sights) = (Vec::with_capacity(messages.len()), Vec::new());
        for (group, claimed) in groups.into_iter().zip(&claimed) {
            let new = claimed.is_new();
            let standing = if new { Some(made(&group[0].identity)) } else { standing.next().flatten() };
            if let Claimed::New { pruned_through } = claimed {
                let Known { delivery, identity } = group[0];
                answers.push(Promised::New(self.routes.too_old(identity.handler, delivery, *pruned_through)));
            }
            for message in &group[usize::from(new)..] {
                let found = match &standing {
                    None => Found::Gone,
                    Some(standing) if standing.fingerprint == message.identity.fingerprint => {
                        // The row of a claim that was just made is no dead letter.
                        if standing.age.is_none() && !new {
                            sights.push(&message.identity);
                        }
                        Found::Duplicate(standing.age)
                    }
                    Some(_) => {
                        self.conflict(txn, &message.delivery, &message.identity).await?;
                        Found::Conflict
                    }
                };
                answers.push(Promised::Found(found));
            }
        }
        if !sights.is_empty() {
            self.store.sight_many(txn, &sights).await?;
        }
        Ok(answers)
    }

    /// Stores sorted messages in the inbox, in one transaction: claims first, then the rows. An error is the step that holds
    /// all of them.
    pub(crate) async fn store_many(&self, messages: &[&Known]) -> Result<Vec<Kept>, Step> {
        let mut txn = self.store.begin(self.settings.deadline).await.map_err(|fault| self.hold_for(fault))?;
        let kept = match self.keep_many(&mut txn, messages).await {
            Ok(kept) => kept,
            Err(fault) => return Err(self.abandon(txn, fault).await),
        };
        settled(self.store.commit(txn).await).map_err(|fault| self.hold_for(fault))?;
        if kept.iter().any(|kept| matches!(kept, Kept::Stored)) {
            self.parked.notify_one();
        }
        Ok(kept)
    }

    async fn keep_many(&self, txn: &mut S::Txn, messages: &[&Known]) -> Result<Vec<Kept>, Fault> {
        let promised = self.promise_many(txn, messages, Promise::Waiting).await?;
        let mut rows = Vec::with_capacity(messages.len());
        for (message, promised) in messages.iter().zip(&promised) {
            if let Promised::New(old) = promised {
                rows.push(message.row(old.as_deref()));
            }
        }
        if !rows.is_empty() {
            self.store.insert_many(txn, &rows).await?;
        }
        let kept = |promised| match promised {
            Promised::New(None) => Kept::Stored,
            Promised::New(Some(_)) => Kept::TooOld,
            Promised::Found(found) => Kept::Found(found),
        };
        Ok(promised.into_iter().map(kept).collect())
    }

    /// Writes the row of another message under a key that is claimed.
    pub(crate) async fn conflict(
        &self,
        txn: &mut S::Txn,
        delivery: &Delivery,
        identity: &Identity,
    ) -> Result<(), Fault> {
        let error = format!("another message was taken over under the key {} before", identity.key);
        let row = NewRow { identity, delivery, attempts: 0, state: Err(Reason::Conflict), error: &error };
        self.store.insert(txn, &row).await
    }
}

/// The claim that was made for this message in the transaction at hand. A copy of it waits as it does.
fn made(identity: &Identity) -> Standing {
    Standing { fingerprint: identity.fingerprint, age: None }
}
