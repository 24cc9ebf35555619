//! The transaction in which messages are taken over, and what follows from its end.

use std::slice;

use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Wait};
use crate::store::{ClaimState, NewRow, StoreError, TxnHandle};
use crate::{Outcome, Reason, Store};

use super::{Classified, Entry, Shared, Written};

impl<S: Store> Pipeline<S> {
    /// Takes a delivery over for its handler: after that the delivery may be acked, and its row runs, and is retried, by itself. On
    /// any failure nothing is written, and the delivery waits.
    ///
    /// The failure of a copy or of a conflict is not recorded: then only the log has it.
    pub(crate) async fn take_over_one(&self, entry: &Entry<'_>) -> Ended {
        if let Some(left_by) = &entry.failure.left_by
            && !self.routes.is_unclaimed(entry.identity.handler)
        {
            return self.dead_letter_committed(entry, left_by).await;
        }
        self.take_over_many(slice::from_ref(entry)).await.pop().unwrap_or(Ended::Lost)
    }

    /// Takes one delivery over for each of several handlers, in one transaction: then each row runs independently.
    ///
    /// # Errors
    /// Nothing is written. `Lost`: the row that the entries replace is another process's now.
    pub(crate) async fn take_over_for_each(&self, entries: &[Entry<'_>]) -> Result<Shared, Ended> {
        let taken = self.take_over_together(entries).await?;
        let outcome = |(entry, taken): (&Entry<'_>, &Written)| {
            // Whether this delivery itself may have stored it, before it was left to a preparation.
            let stored = matches!(taken.classified, Classified::Duplicate(_)) && entry.delivery.rare().preparations > 0;
            let outcome = if stored { Outcome::stored() } else { self.logged(entry, taken) };
            (entry.identity.clone(), outcome)
        };
        let is_known = |entry: &Entry<'_>| entry.identity.has_key();
        let is_new = taken.iter().all(|taken| taken.classified == Classified::New) && entries.iter().any(is_known);
        Ok(Shared { outcomes: entries.iter().zip(&taken).map(outcome).collect(), is_new })
    }

    /// Takes several deliveries over in one transaction, each for one handler, in claim order. Returns what became of each.
    ///
    /// If a claim is held up, or the database refuses a message, they are halved until the message at fault is alone. In an
    /// outage, and once the worker drains, none that is left is tried. If there is no answer, one of them may be the message
    /// that takes too long: each is tried alone after that, because it has been tried once.
    pub(crate) async fn take_over_many(&self, entries: &[Entry<'_>]) -> Vec<Ended> {
        let (mut all, mut parts) = (Vec::with_capacity(entries.len()), vec![entries]);
        while let Some(part) = parts.pop() {
            let ends = self.draining.is_cancelled() || !self.outage.is_up();
            let stored = match ends && part.len() < entries.len() {
                true => Err(Ended::Park(Wait::Free)),
                false => self.take_over_together(part).await,
            };
            match stored {
                Ok(taken) => {
                    let outcomes = part.iter().zip(&taken).map(|(entry, taken)| self.logged(entry, taken));
                    all.extend(outcomes.map(Ended::Done));
                }
                Err(ended) if part.len() == 1 => all.push(ended),
                Err(Ended::Park(Wait::Free)) => all.extend(part.iter().map(|_| Ended::Park(Wait::Free))),
                Err(Ended::Park(Wait::Unanswered)) => all.extend(part.iter().map(|_| Ended::Park(Wait::Unanswered))),
                Err(_) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        all
    }

    /// Takes messages over in one transaction. The error parks all of them. A delivery for which no handler can be called waits
    /// while the kill switch holds such deliveries.
    async fn take_over_together(&self, entries: &[Entry<'_>]) -> Result<Vec<Written>, Ended> {
        let undeliverable = undeliverable(entries);
        if undeliverable.is_some_and(|(reason, _)| self.kill_switch.holds(reason)) {
            return Err(Ended::Park(Wait::Free));
        }
        // All entries replace the same row.
        let replaced = entries.iter().find_map(|entry| entry.replaces);
        let begun = self.store.begin(self.settings.handler_timeout).await;
        let mut txn = begun.map_err(|fault| self.outage.hold_for(fault))?;
        let written = async {
            let taken = self.claim_and_insert(&mut txn, entries).await?;
            let is_ours = match replaced {
                Some(row) => self.store.start(&mut txn, &[row], ClaimState::Waiting).await? == [true],
                None => true,
            };
            Ok::<_, StoreError>((taken, is_ours))
        }
        .await;
        let (taken, is_ours) = match written {
            Ok(written) => written,
            Err(fault) => return Err(self.outage.hold_for(self.abandon(txn, fault).await)),
        };
        let is_gone = taken.iter().any(|taken| taken.classified == Classified::Gone);
        if is_gone || !is_ours {
            return Err(match self.store.rollback(txn).await {
                // As if another transaction held the claim: of several messages, only this one is tried again alone.
                Ok(_) if is_gone => Ended::Park(Wait::Claim),
                Ok(_) => Ended::Lost,
                Err(fault) => self.outage.hold_for(fault),
            });
        }
        self.store.commit(txn).await.of_own().map_err(|fault| self.outage.hold_for(fault))?;
        let is_due =
            |(entry, taken): (&Entry<'_>, &Written)| taken.classified == Classified::New && entry.failure.next.is_ok();
        if entries.iter().zip(&taken).any(is_due) {
            self.wake_inbox();
        }
        if let Some((reason, error)) = undeliverable {
            self.kill_switch.undeliverable(reason, error);
        }
        Ok(taken)
    }

    /// Makes a message dead whose handler has committed its claim. Until this is written, the message counts as processed, also
    /// if it is delivered again: whoever has the message keeps its failure, and tries again.
    pub(crate) async fn dead_letter_committed(&self, entry: &Entry<'_>, left_by: &TxnHandle) -> Ended {
        let Err(fault) = self.insert_committed(entry, left_by).await else {
            return Ended::Done(Outcome::Dead { reason: Reason::Committed });
        };
        // Until it is written, only the log has it.
        tracing::error!(
            source = entry.delivery.source(),
            message_id = entry.delivery.message_id(),
            position = entry.delivery.position(),
            error = crate::error::text(&fault),
            show = self.why(&entry.identity).map(tracing::field::display),
            "a handler ran COMMIT, and the dead letter of its message could not be written; until it is, the message counts as \
             processed; it is retried while this worker runs"
        );
        self.outage.hold_for(fault)
    }

    /// Writes the dead letter, unless the claim has changed since the handler's COMMIT: then it was written by a try
    /// whose answer was lost, and an operator may have replayed or discarded it since. Without a claim, which was pruned
    /// or lost with its server, nothing else remembers the message, and it is written.
    async fn insert_committed(&self, entry: &Entry<'_>, left_by: &TxnHandle) -> Result<(), StoreError> {
        let Entry { identity, delivery, failure, .. } = entry;
        let row = NewRow::new(identity, delivery, failure.next).with_attempts(failure.attempts, &failure.error);
        let mut txn = self.store.begin(self.settings.handler_timeout).await?;
        let is_left = self.store.reopen(&mut txn, identity, left_by).await?
            || self.store.existing_claims(&mut txn, &[identity], true).await? == [None];
        let id = if is_left { self.store.insert(&mut txn, &[row]).await?.pop() } else { None };
        self.store.commit(txn).await.of_own()?;
        match id {
            Some(_) => drop(failure.logged(self.store.facts(), id)),
            None => tracing::debug!("the dead letter of a handler that ran COMMIT was written by an earlier try"),
        }
        Ok(())
    }

    /// Returns the outcome of a message that was taken over, and logs the failure that was written or that could not be.
    fn logged(&self, entry: &Entry<'_>, taken: &Written) -> Outcome {
        let _entered = entry.span.enter();
        let Written { classified, row } = taken;
        let outcome = match entry.written(classified) {
            Some((attempts, next, error)) => {
                let failure = Failure { attempts, ..Failure::new(next, error) };
                let show_row = || self.store.facts().show_row(*row);
                match next {
                    Err(Reason::Conflict) => {
                        failure.logged_with(*row, || self.why(&entry.identity).unwrap_or_else(show_row))
                    }
                    _ => failure.logged_with(*row, show_row),
                }
            }
            None => classified.duplicate(self.routes.meters(entry.identity.handler)),
        };
        let is_known = matches!(classified, Classified::Duplicate(_) | Classified::Conflict(_));
        if is_known && entry.failure.attempts > 0 {
            let (outcome, error) = (outcome.as_str(), entry.failure.error.as_str());
            tracing::warn!(
                outcome,
                key = %entry.identity.key,
                error,
                show = self.why(&entry.identity).map(tracing::field::display),
                "a message has failed whose key has been claimed meanwhile, so the failure is not recorded"
            );
        }
        outcome
    }
}

/// Returns why no handler can be called for a delivery. A replayed one says nothing about those that arrive now.
fn undeliverable<'e>(entries: &'e [Entry<'_>]) -> Option<(Reason, &'e str)> {
    let is_undeliverable = |entry: &Entry<'_>| entry.replaces.is_none() && !entry.identity.has_key();
    let first = entries.first().filter(|_| entries.iter().all(is_undeliverable))?;
    Some((first.failure.next.err()?, first.failure.error.as_str()))
}
