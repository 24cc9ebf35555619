//! One transaction for many deliveries: claims, handlers, guard, commit.

use std::time::Duration;

use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::execute::Staged;
use crate::registry::Job;
use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Running};
use crate::store::{Identity, Row, StoreError, TxnState};
use crate::take_over::Classified;
use crate::telemetry::Meters;
use crate::{Delivery, Outcome, Store, telemetry};

use super::item::{Item, Verdict, meters};

/// The first step of a transaction of a batch.
#[derive(Clone, Copy)]
pub(super) enum Opening<'a> {
    /// The claims of deliveries.
    Claims,
    /// The start of inbox rows, which already have claims.
    Rows(&'a [Row]),
}

/// The result of one transaction of a batch. Unless it is `Done`, or the connection broke, nothing of it is in the
/// database, except what natural handlers have written before one of them ran COMMIT.
pub(super) enum TransactionResult {
    /// Committed: a verdict for each item, in their order.
    Done(Vec<Verdict>),
    /// The handler of this item failed, or these items cannot be in a batch: the others run again without them.
    Without(Vec<usize>),
    /// A message failed, and it is unknown which: a swallowed error, a deferred constraint, a locked key, a message
    /// that the database refuses, a COMMIT beside messages without claims. Or the batch lost against a concurrent
    /// transaction.
    Split,
    /// The database did not respond, or cannot be used; nothing had begun.
    Outage(StoreError),
    /// This for all of them.
    All(Verdict),
}

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
            Some(Err(index)) => return TransactionResult::Without(vec![index]),
            None => return TransactionResult::All(Verdict::PutOff),
        }
        let messages: Vec<(&Identity, &Delivery)> = items.iter().map(|item| (&item.identity, facts[item.at])).collect();
        // Each call has the timeout of its handler. The limits of the transaction must leave room for every call.
        let longest = items.iter().map(|item| item.route.timeout).max().unwrap_or_default();
        let rows = match opening {
            Opening::Claims => None,
            Opening::Rows(rows) => Some(items.iter().map(|item| &rows[item.at]).collect()),
        };
        let began = Instant::now();
        let opened = self.open(longest, &messages, rows).await;
        if matches!(opening, Opening::Claims) {
            meters(items).for_each(|meters| meters.claim.record(began.elapsed()));
        }
        let (txn, found) = match opened {
            Ok(opened) => opened,
            Err(round) => return round,
        };
        let new = places(&found, |found| *found == Classified::New);
        let calls = calls(items, &new);
        let messages: Vec<_> = items.iter().map(|item| (&item.identity, facts[item.at])).collect();
        // A message that is claimed here and does not run would be lost.
        if calls.iter().map(|call| call.places.len()).sum::<usize>() != new.len() {
            return self.rolled_back(txn, TransactionResult::Without(new)).await;
        }
        let mut staged = Staged::default();
        let (txn, last) = match self.call_all(txn, calls, &messages, &mut staged, running).await {
            Ok(called) => called,
            Err(Failed { ended, places, is_first_to_end }) => {
                let ended_by = if is_first_to_end { &*places } else { &[] };
                return self.blame(ended, &places, ended_by).unwrap_or(TransactionResult::Split);
            }
        };
        let ended = std::time::Instant::now();
        let ran = self.commit(txn, staged).await;
        let took = self.commit_ended(&ran, ended);
        meters(items).for_each(|meters| meters.commit.record(took));
        if let Some(round) = self.blame(ran, &[], &last) {
            return round;
        }
        let verdicts = items.iter().zip(&found).map(|(item, found)| verdict(&item.route.meters, found));
        TransactionResult::Done(verdicts.collect())
    }

    /// Decodes the items whose jobs an earlier transaction consumed, before any transaction is open. The error is the
    /// index of one that cannot be decoded.
    fn decode_again(&self, items: &mut [Item<'_, S>], facts: &[&Delivery]) -> Result<(), usize> {
        for (index, item) in items.iter_mut().enumerate().filter(|(_, item)| item.job.is_none()) {
            item.job = Some(self.again(item.route, facts[item.at], &item.identity).map_err(|_| index)?);
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
    ) -> Result<(S::Txn, Vec<Classified>), TransactionResult> {
        let are_rows = rows.is_some();
        if !are_rows {
            self.record_histories(messages).await.map_err(|fault| self.failed_before_handlers(fault))?;
        }
        let mut txn = self.store.begin(timeout).await.map_err(|fault| self.failed_before_handlers(fault))?;
        let found = match rows {
            None => self.claims(&mut txn, messages).await,
            Some(rows) => self.starts(&mut txn, &rows).await,
        };
        let found = match found {
            Ok(found) => found,
            Err(fault) if !fault.is_answered() => return Err(TransactionResult::Outage(fault)),
            Err(fault) => return Err(self.rolled_back(txn, self.failed_before_handlers(fault)).await),
        };
        // A message that is too old and a conflict need a row, a duplicate of a message in the inbox has to be counted, and a
        // removed claim has to be inserted again: each by itself.
        let odd = places(&found, |found| match found {
            Classified::New | Classified::Duplicate(Some(_)) => false,
            Classified::Gone => !are_rows,
            Classified::TooOld(_) | Classified::Duplicate(None) | Classified::Conflict(_) => true,
        });
        if !odd.is_empty() {
            return Err(self.rolled_back(txn, TransactionResult::Without(odd)).await);
        }
        Ok((txn, found))
    }

    /// Calls the handlers, one after another, and collects what they stage. Returns the transaction, and the items of the last
    /// call if it is known that all calls before it have left the transaction open: if it has ended, then by that call. If a
    /// suspect comes first, no further handler is called. On error, the transaction has ended.
    async fn call_all(
        &self,
        mut txn: S::Txn,
        calls: Vec<Call<'_, S>>,
        messages: &[(&Identity, &Delivery)],
        staged: &mut Staged,
        running: &Running,
    ) -> Result<(S::Txn, Vec<usize>), Failed> {
        let (mut before, mut was_open) = (Vec::new(), true);
        let mut calls = calls.into_iter();
        while let Some(Call { places, route, job }) = calls.next() {
            if !before.is_empty() {
                match self.store.check_between(&mut txn).await {
                    Ok(TxnState::Open) => was_open = true,
                    // Nothing can be written behind the end of the transaction, so no later call needs to be prevented.
                    Ok(TxnState::Unknown) => was_open = false,
                    Ok(TxnState::Ended) => {
                        drop((job, calls));
                        let ended = self.undo(txn, Some("the handler ended the transaction".into())).await;
                        return Err(Failed { ended, places: before, is_first_to_end: true });
                    }
                    Err(fault) => {
                        return Err(Failed { ended: Ended::Broke(fault), places: before, is_first_to_end: false });
                    }
                }
            }
            let Some(user_code) = running.user_code() else {
                drop((job, calls));
                let ended = self.undo(txn, None).await;
                return Err(Failed { ended, places: before, is_first_to_end: false });
            };
            let span = if route.handler.facts().takes_batch {
                Span::none()
            } else {
                self.call_span(route, messages[places[0]])
            };
            let began = Instant::now();
            let outbox = job.outbox().cloned();
            let mut handled = self.handle(route, job, &mut txn, began).instrument(span.clone()).await;
            route.meters.handler.record(began.elapsed());
            if let (Some(Ok(())), Some(outbox)) = (&handled, outbox) {
                // In its span, which the messages name as their parent.
                let stage = || self.stage(staged, route, messages[places[0]], &outbox);
                handled = Some(span.in_scope(stage));
            }
            let error = match handled {
                Some(Ok(())) => {
                    before = places;
                    continue;
                }
                Some(Err(error)) => Some(error),
                None => None,
            };
            // Before the end of the transaction, which may take as long as an outage: the drop of a message is user code, and a
            // suspect may run beside what comes then.
            drop((calls, user_code, span));
            let ended = match error {
                Some(error) => self.undo(txn, Some(error)).await,
                None => self.unreturned(txn, route.timeout).await,
            };
            return Err(Failed { ended, places, is_first_to_end: was_open });
        }
        Ok((txn, if was_open { before } else { Vec::new() }))
    }

    /// Returns the span in which the handler is called for one message. The ack of the message has another one.
    fn call_span(&self, route: &Route<S>, (identity, delivery): (&Identity, &Delivery)) -> Span {
        let span = telemetry::span(self.system, &self.consumer, delivery);
        span.record("idem.handler", route.handler.facts().name);
        span.record("idem.key", tracing::field::display(&identity.key));
        span
    }

    /// Starts the rows: deletes them and dates their claims. A row whose lease was lost is gone.
    async fn starts(&self, txn: &mut S::Txn, rows: &[&Row]) -> Result<Vec<Classified>, StoreError> {
        let started = self.store.start(txn, rows).await?;
        Ok(started.into_iter().map(|started| if started { Classified::New } else { Classified::Gone }).collect())
    }

    /// Converts an error that occurred before any handler ran.
    fn failed_before_handlers(&self, fault: StoreError) -> TransactionResult {
        match fault {
            StoreError::LockTimeout | StoreError::Message(_) => TransactionResult::Split,
            StoreError::Serialization(_) => {
                self.throttle.shrink();
                TransactionResult::Split
            }
            StoreError::ConnectionLost(_) | StoreError::Unavailable(_) => TransactionResult::Outage(fault),
        }
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
    ended: Ended,
    /// The items of the call.
    places: Vec<usize>,
    /// Whether no call before it has ended the transaction.
    is_first_to_end: bool,
}

/// Returns the verdict of a message whose batch has committed, and counts the age of a duplicate.
fn verdict(meters: &Meters, found: &Classified) -> Verdict {
    match found.outcome(meters) {
        Some(outcome) => Verdict::Done(outcome),
        None if *found == Classified::New => Verdict::Done(Outcome::Processed),
        None => Verdict::Lost,
    }
}

fn places<T>(all: &[T], which: impl Fn(&T) -> bool) -> Vec<usize> {
    (0..all.len()).filter(|place| which(&all[*place])).collect()
}

/// One call of a handler, for the items with these indices.
struct Call<'a, S: Store> {
    places: Vec<usize>,
    route: &'a Route<S>,
    job: Box<dyn Job<S>>,
}

/// The new items of a batch handler.
type BatchCall<'a, S> = (&'a Route<S>, Vec<usize>, Vec<Box<dyn Job<S>>>);

/// Returns the calls for the new items, in the order in which their deliveries arrived. A batch handler is called once.
fn calls<'a, S: Store>(items: &mut [Item<'a, S>], new: &[usize]) -> Vec<Call<'a, S>> {
    let mut order = new.to_vec();
    order.sort_unstable_by_key(|index| items[*index].at);
    let (mut calls, mut batched): (Vec<Call<'a, S>>, Vec<BatchCall<'a, S>>) = Default::default();
    for index in order {
        let route = items[index].route;
        let Some(job) = items[index].job.take() else { continue };
        if !route.handler.facts().takes_batch {
            calls.push(Call { places: vec![index], route, job });
            continue;
        }
        match batched.iter_mut().find(|(of, ..)| of.id == route.id) {
            Some((_, places, jobs)) => {
                places.push(index);
                jobs.push(job);
            }
            None => batched.push((route, vec![index], vec![job])),
        }
    }
    let joined =
        |(route, places, jobs): (&'a Route<S>, _, _)| route.handler.join(jobs).map(|job| Call { places, route, job });
    calls.extend(batched.into_iter().filter_map(joined));
    calls
}
