//! One transaction for many deliveries: claims, handlers, guard, commit.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::execute::{Staged, Unhandled};
use crate::routes::Route;
use crate::runtime::{Pipeline, Running};
use crate::store::{Identity, Row, StoreError, TxnState};
use crate::{Delivery, Outcome, Store, telemetry};

use super::blame::Culprit;
use super::calls::{Call, calls};
use super::item::{Item, Verdict, meters};
use super::opening::{Opened, Opening, TransactionResult};

impl<S: Store> Pipeline<S> {
    /// Runs these items, which are sorted by handler and key, in one transaction.
    pub(super) async fn run_transaction(
        &self,
        items: &mut [Item<'_, S>],
        facts: &[&Delivery],
        opening: Opening<'_>,
        running: &Running,
    ) -> TransactionResult {
        match running.user_code().map(|_user_code| self.decode_again(items, facts)) {
            Some(Ok(())) => {}
            Some(Err(place)) => return TransactionResult::Without(vec![place]),
            None => return TransactionResult::PutOff,
        }
        let messages: Vec<(&Identity, &Delivery)> = items.iter().map(|item| (&item.identity, facts[item.at])).collect();
        // Each call has the timeout of its handler. The limits of the transaction must leave room for every call.
        let longest = items.iter().map(|item| item.route.timeout).max().unwrap_or_default();
        let began = Instant::now();
        let opened = match opening {
            Opening::Claims => {
                let opened = self.open(longest, &messages, None).await;
                meters(items).for_each(|meters| meters.claim.record(began.elapsed()));
                opened
            }
            Opening::Rows(rows) => {
                self.open(longest, &messages, Some(items.iter().map(|item| &rows[item.at]).collect())).await
            }
        };
        let (mut txn, found) = match opened {
            Ok(opened) => opened,
            Err(round) => return round,
        };
        let new = places(&found, |found| *found == Opened::New);
        let calls = calls(items, &new);
        let messages: Vec<_> = items.iter().map(|item| (&item.identity, facts[item.at])).collect();
        // A message that is claimed here and does not run would be lost.
        if calls.iter().map(|call| call.places.len()).sum::<usize>() != new.len() {
            return self.rolled_back(txn, TransactionResult::Without(new)).await;
        }
        let mut staged = Staged::default();
        let last = match self.call_all(&mut txn, calls, &messages, &mut staged, running).await {
            Ok(last) => last,
            Err(Failed { unhandled, places, is_first_to_end }) => {
                let ran = match unhandled {
                    Some(unhandled) => self.undo(txn, unhandled).await,
                    None => return TransactionResult::Broke,
                };
                let ended_by = if is_first_to_end { &*places } else { &[] };
                let culprit = Culprit { places: &places, ended_by };
                return self.blame(ran, culprit).unwrap_or(TransactionResult::Split);
            }
        };
        let ended = std::time::Instant::now();
        let ran = self.commit(txn, staged).await;
        let took = self.commit_ended(&ran, ended);
        meters(items).for_each(|meters| meters.commit.record(took));
        if let Some(round) = self.blame(ran, Culprit { places: &[], ended_by: &last }) {
            return round;
        }
        ages(items, &found);
        TransactionResult::Done(found.into_iter().map(Verdict::from).collect())
    }

    /// Decodes the items whose jobs an earlier transaction consumed, before any transaction is open. The error is the
    /// place of one that cannot be decoded.
    fn decode_again(&self, items: &mut [Item<'_, S>], facts: &[&Delivery]) -> Result<(), usize> {
        for (place, item) in items.iter_mut().enumerate().filter(|(_, item)| item.job.is_none()) {
            item.job = Some(self.again(item.route, facts[item.at], &item.identity).map_err(|_| place)?);
        }
        Ok(())
    }

    /// Begins a transaction whose statements may take this long, and claims all messages or starts their rows. An error
    /// is the result of a round that ends here.
    async fn open(
        &self,
        timeout: Duration,
        messages: &[(&Identity, &Delivery)],
        rows: Option<Vec<&Row>>,
    ) -> Result<(S::Txn, Vec<Opened>), TransactionResult> {
        if rows.is_none() {
            self.record_histories(messages).await.map_err(failed_before_handlers)?;
        }
        let mut txn = self.store.begin(timeout).await.map_err(failed_before_handlers)?;
        let found = match rows {
            None => self.claims(&mut txn, messages).await,
            Some(rows) => self.starts(&mut txn, &rows).await,
        };
        let found = match found {
            Ok(found) => found,
            Err(fault) if !fault.is_answered() => return Err(TransactionResult::Outage(fault)),
            Err(fault) => return Err(self.rolled_back(txn, failed_before_handlers(fault)).await),
        };
        let odd = places(&found, |found| *found == Opened::Single);
        if !odd.is_empty() {
            return Err(self.rolled_back(txn, TransactionResult::Without(odd)).await);
        }
        Ok((txn, found))
    }

    /// Calls the handlers, one after another, and collects what they stage. Returns the items of the last call if it is
    /// known that all calls before it have left the transaction open: if it has ended, then by that call. If a suspect comes
    /// first, no further handler is called.
    async fn call_all(
        &self,
        txn: &mut S::Txn,
        calls: Vec<Call<'_, S>>,
        messages: &[(&Identity, &Delivery)],
        staged: &mut Staged,
        running: &Running,
    ) -> Result<Vec<usize>, Failed> {
        let (mut before, mut was_open) = (Vec::new(), true);
        for Call { places, route, job } in calls {
            if !before.is_empty() {
                match self.store.check_between(txn).await {
                    Ok(TxnState::Open) => was_open = true,
                    // Nothing can be written behind the end of the transaction, so no later call needs to be prevented.
                    Ok(TxnState::Unknown) => was_open = false,
                    Ok(TxnState::Ended) => {
                        let unhandled = Unhandled::Failed("the handler ended the transaction".into());
                        return Err(Failed { unhandled: Some(unhandled), places: before, is_first_to_end: true });
                    }
                    Err(fault) => {
                        self.outage.report(&fault);
                        return Err(Failed { unhandled: None, places: before, is_first_to_end: false });
                    }
                }
            }
            let Some(_user_code) = running.user_code() else {
                return Err(Failed { unhandled: Some(Unhandled::PutOff), places: before, is_first_to_end: false });
            };
            let span =
                if route.handler.takes_batch() { Span::none() } else { self.call_span(route, messages[places[0]]) };
            let began = Instant::now();
            let outbox = job.outbox().cloned();
            let mut handled = self.handle(route, job, txn, began).instrument(span.clone()).await;
            route.meters.handler.record(began.elapsed());
            if let (Ok(()), Some(outbox)) = (&handled, outbox) {
                // In its span, which the messages name as their parent.
                let stage = || self.stage(staged, route, messages[places[0]], &outbox);
                handled = span.in_scope(stage).map_err(Unhandled::Failed);
            }
            if let Err(unhandled) = handled {
                return Err(Failed { unhandled: Some(unhandled), places, is_first_to_end: was_open });
            }
            before = places;
        }
        Ok(if was_open { before } else { Vec::new() })
    }

    /// Returns the span in which the handler is called for one message. The ack of the message has another one.
    fn call_span(&self, route: &Route<S>, (identity, delivery): (&Identity, &Delivery)) -> Span {
        let span = telemetry::span(self.system, &self.consumer, delivery);
        span.record("idem.handler", route.handler.name());
        span.record("idem.key", tracing::field::display(&identity.key));
        span
    }

    /// Starts the rows: deletes them and dates their claims.
    async fn starts(&self, txn: &mut S::Txn, rows: &[&Row]) -> Result<Vec<Opened>, StoreError> {
        let started = self.store.start(txn, rows).await?;
        Ok(started.into_iter().map(|started| if started { Opened::New } else { Opened::Lost }).collect())
    }

    async fn rolled_back(&self, txn: S::Txn, round: TransactionResult) -> TransactionResult {
        match self.store.rollback(txn).await {
            Ok(_) => round,
            Err(fault) => TransactionResult::Outage(fault),
        }
    }
}

/// A call of a handler that ended the round.
struct Failed {
    /// The reason; `None` if the connection was lost.
    unhandled: Option<Unhandled>,
    /// The items of the call.
    places: Vec<usize>,
    /// Whether no call before it has ended the transaction.
    is_first_to_end: bool,
}

impl From<Opened> for Verdict {
    fn from(found: Opened) -> Self {
        match found {
            Opened::New => Self::Done(Outcome::Processed),
            Opened::Duplicate(_) => Self::Done(Outcome::Duplicate),
            Opened::Single => Self::Single,
            Opened::Lost => Self::Lost,
        }
    }
}

/// Converts an error that occurred before any handler ran.
fn failed_before_handlers(fault: StoreError) -> TransactionResult {
    match fault {
        StoreError::LockTimeout | StoreError::Message(_) => TransactionResult::Split,
        StoreError::Serialization(_) => TransactionResult::Deadlock,
        StoreError::ConnectionLost(_) | StoreError::Unavailable(_) => TransactionResult::Outage(fault),
    }
}

/// Counts the ages of the duplicates among the items.
fn ages<S: Store>(items: &[Item<'_, S>], found: &[Opened]) {
    for (item, found) in items.iter().zip(found) {
        if let Opened::Duplicate(age) = found {
            item.route.meters.duplicate_age(*age);
        }
    }
}

fn places<T>(all: &[T], which: impl Fn(&T) -> bool) -> Vec<usize> {
    (0..all.len()).filter(|place| which(&all[*place])).collect()
}
