//! One transaction for many deliveries: claims, handlers, guard, commit.

use std::time::Duration;

use tokio::time::Instant;

use crate::execute::Handled;
use crate::execute::Ran;
use crate::registry::{Job, Route};
use crate::runtime::Pipeline;
use crate::store::{Claimed, Committed, Fault, Identity, Promise, Row, Undone};
use crate::{Delivery, Outcome, Store};

use super::item::{Item, Verdict};

/// What a transaction of a batch opens with.
#[derive(Clone, Copy)]
pub(super) enum Opening<'a> {
    /// The claims of deliveries.
    Claims,
    /// The start of rows of the inbox, which have their claims.
    Rows(&'a [Row]),
}

/// What one transaction of a batch came to. Unless it is `Done`, nothing of it is in the database.
pub(super) enum Round {
    /// Committed: a verdict for each item, in their order.
    Done(Vec<Verdict>),
    /// The handler of this item failed, or these items cannot be in a batch: the others run again without them.
    Without(Vec<usize>),
    /// Somebody failed, and nobody can be named: a swallowed error, a deferred constraint, a key that is held up, a message
    /// that the database refuses.
    Split,
    /// Lost against a concurrent transaction.
    Deadlock,
    /// The database gave no answer, or cannot be used; nothing had begun.
    Outage(Fault),
    /// The connection was lost, or COMMIT was not answered.
    Broke,
    /// A handler ran COMMIT: the claims stand, and perhaps some of the effects.
    CommittedEarly(Vec<usize>),
    /// The worker stops.
    Stopped,
}

impl<S: Store> Pipeline<S> {
    /// Runs these items, which are sorted by handler and key, in one transaction.
    pub(super) async fn round(&self, items: &mut [Item<'_, S>], facts: &[&Delivery], opening: Opening<'_>) -> Round {
        // Decoded again where a round before has consumed them, before anything is open.
        for (place, item) in items.iter_mut().enumerate() {
            if item.job.is_none() {
                match self.again(item.route, facts[item.at], &item.identity) {
                    Ok(job) => item.job = Some(job),
                    Err(_) => return Round::Without(vec![place]),
                }
            }
        }
        let mut txn = match self.store.begin(self.settings.deadline).await {
            Ok(txn) => txn,
            Err(fault) => return faulty(fault),
        };
        let messages: Vec<(&Identity, &Delivery)> = items.iter().map(|item| (&item.identity, facts[item.at])).collect();
        let found = match opening {
            Opening::Claims => self.claims(&mut txn, &messages).await,
            Opening::Rows(rows) => {
                let rows: Vec<&Row> = items.iter().map(|item| &rows[item.at]).collect();
                self.starts(&mut txn, &rows).await
            }
        };
        let found = match found {
            Ok(found) => found,
            Err(fault) if !fault.is_answered() => return Round::Outage(fault),
            Err(fault) => return self.undone(txn, faulty(fault)).await,
        };
        let odd = places(&found, |found| *found == Found::Odd);
        if !odd.is_empty() {
            return self.undone(txn, Round::Without(odd)).await;
        }
        let new = places(&found, |found| *found == Found::New);
        let calls = calls(items, &new);
        // What is claimed here and does not run would be lost.
        if calls.iter().map(|call| call.places.len()).sum::<usize>() != new.len() {
            return self.undone(txn, Round::Without(new)).await;
        }
        let mut before = Vec::new();
        for Call { places, route, job } in calls {
            if !before.is_empty() {
                match self.store.between(&mut txn).await {
                    Ok(true) => {}
                    // Whatever it did, it was the one before.
                    Ok(false) => return self.broken(txn, || blamed(&before), || blamed(&before), new).await,
                    Err(fault) => return self.lost(&fault),
                }
            }
            let began = Instant::now();
            let handled = self.handle(job, &mut txn, began).await;
            route.meters.handler.record(began.elapsed());
            let ticket = self.store.ticket(&txn);
            let error = match handled {
                Handled::Returned(Ok(())) => {
                    before = places;
                    continue;
                }
                Handled::Returned(Err(error)) => error,
                Handled::Panicked(text) => text.into(),
                // Dropping the transaction closes the connection, whose state is not known.
                Handled::Stopped => {
                    drop(txn);
                    return self.ended(self.cut_off(ticket, Ran::Stopped).await, new, &places);
                }
                Handled::Late => {
                    drop(txn);
                    return self.ended(self.late(ticket).await, new, &places);
                }
            };
            // Any other lost race is tried anew where its message is alone.
            let round = if self.store.deadlocked(error.as_ref()) { Round::Deadlock } else { blamed(&places) };
            // The transaction may have been ended by this handler or by one before it, behind which nothing can be written.
            return self.broken(txn, || round, || Round::Split, new).await;
        }
        match self.store.commit(txn).await {
            Committed::Done => {
                for (item, found) in items.iter().zip(&found) {
                    if let Found::Duplicate(age) = found {
                        item.route.meters.duplicate_age(*age);
                    }
                }
                Round::Done(found.into_iter().map(Verdict::from).collect())
            }
            Committed::CommittedEarly => Round::CommittedEarly(new),
            Committed::Swallowed | Committed::RolledBack | Committed::CommitRefused | Committed::Refused(_) => {
                Round::Split
            }
            Committed::Retry(_) => Round::Deadlock,
            Committed::Unknown(fault) => self.lost(&fault),
        }
    }

    /// Claims all of them, and says what those are that were claimed before.
    async fn claims(&self, txn: &mut S::Txn, messages: &[(&Identity, &Delivery)]) -> Result<Vec<Found>, Fault> {
        let identities: Vec<&Identity> = messages.iter().map(|(identity, _)| *identity).collect();
        let claimed = self.store.claim_many(txn, &identities, Promise::Processed).await?;
        // What is too old has a row to write.
        let of_new = |((identity, delivery), claimed): (&(&Identity, &Delivery), &Claimed)| match claimed {
            Claimed::New { pruned_through }
                if self.routes.too_old(identity.handler, delivery, *pruned_through).is_some() =>
            {
                Found::Odd
            }
            _ => Found::New,
        };
        let mut found: Vec<Found> = messages.iter().zip(&claimed).map(of_new).collect();
        let old = places(&claimed, |claimed| *claimed == Claimed::Found);
        let sought: Vec<&Identity> = old.iter().map(|place| identities[*place]).collect();
        let standing = if old.is_empty() { Vec::new() } else { self.store.known(txn, &sought).await? };
        for (place, standing) in old.into_iter().zip(standing) {
            found[place] = match standing.map(|standing| (standing.fingerprint, standing.age)) {
                Some((fingerprint, Some(age))) if fingerprint == identities[place].fingerprint => Found::Duplicate(age),
                // A conflict has a row to write, a message in the inbox a sighting to count, and a claim that is gone is to
                // be made again.
                _ => Found::Odd,
            };
        }
        Ok(found)
    }

    /// Starts the rows: deletes them and dates their claims.
    async fn starts(&self, txn: &mut S::Txn, rows: &[&Row]) -> Result<Vec<Found>, Fault> {
        let started = self.store.start_many(txn, rows).await?;
        Ok(started.into_iter().map(|started| if started { Found::New } else { Found::Lost }).collect())
    }

    /// Rolls back what a handler has failed in, or ended.
    async fn broken(
        &self,
        txn: S::Txn,
        failed: impl FnOnce() -> Round,
        ended: impl FnOnce() -> Round,
        new: Vec<usize>,
    ) -> Round {
        let ticket = self.store.ticket(&txn);
        match self.store.rollback(txn).await {
            Ok(Undone::RolledBack | Undone::CommitRefused) => failed(),
            Ok(Undone::Ended) => ended(),
            Ok(Undone::CommittedEarly) => Round::CommittedEarly(new),
            Err(fault) => self.ended(self.cut_off(ticket, Ran::Broke(fault)).await, new, &[]),
        }
    }

    async fn undone(&self, txn: S::Txn, round: Round) -> Round {
        match self.store.rollback(txn).await {
            Ok(_) => round,
            Err(fault) => Round::Outage(fault),
        }
    }

    /// What it means for the batch that a call of a handler was cut off.
    fn ended(&self, ran: Ran, new: Vec<usize>, places: &[usize]) -> Round {
        match ran {
            Ran::Broke(fault) => self.lost(&fault),
            Ran::Stopped => Round::Stopped,
            Ran::CommittedEarly => Round::CommittedEarly(new),
            _ => blamed(places),
        }
    }

    fn lost(&self, fault: &Fault) -> Round {
        self.outage.report(fault);
        Round::Broke
    }
}

/// What a claim of a batch has found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    New,
    /// Processed so long ago.
    Duplicate(Duration),
    /// To be taken alone.
    Odd,
    /// Its row is no longer ours.
    Lost,
}

impl From<Found> for Verdict {
    fn from(found: Found) -> Self {
        match found {
            Found::New => Self::Done(Outcome::Processed),
            Found::Duplicate(_) => Self::Done(Outcome::Duplicate),
            Found::Odd => Self::Alone,
            Found::Lost => Self::Lost,
        }
    }
}

/// One call of a handler, for the items at these places.
struct Call<'a, S: Store> {
    places: Vec<usize>,
    route: &'a Route<S>,
    job: Box<dyn Job<S>>,
}

/// The new items of a handler of sets.
type Set<'a, S> = (&'a Route<S>, Vec<usize>, Vec<Box<dyn Job<S>>>);

/// The calls for the new items, in the order in which their deliveries came; a handler of sets is called once.
fn calls<'a, S: Store>(items: &mut [Item<'a, S>], new: &[usize]) -> Vec<Call<'a, S>> {
    let mut order = new.to_vec();
    order.sort_unstable_by_key(|place| items[*place].at);
    let (mut calls, mut sets): (Vec<Call<'a, S>>, Vec<Set<'a, S>>) = Default::default();
    for place in order {
        let route = items[place].route;
        let Some(job) = items[place].job.take() else { continue };
        if !route.handler.is_set() {
            calls.push(Call { places: vec![place], route, job });
            continue;
        }
        match sets.iter_mut().find(|(of, ..)| of.id == route.id) {
            Some((_, places, jobs)) => {
                places.push(place);
                jobs.push(job);
            }
            None => sets.push((route, vec![place], vec![job])),
        }
    }
    let joined =
        |(route, places, jobs): (&'a Route<S>, _, _)| route.handler.join(jobs).map(|job| Call { places, route, job });
    calls.extend(sets.into_iter().filter_map(joined));
    calls
}

/// A failure of a call that ran one message is known by its place; of a call that ran many, by halving.
fn blamed(places: &[usize]) -> Round {
    match places {
        [only] => Round::Without(vec![*only]),
        _ => Round::Split,
    }
}

/// What a fault means before any handler has run.
fn faulty(fault: Fault) -> Round {
    match fault {
        Fault::Busy | Fault::Message(_) => Round::Split,
        Fault::Retry(_) => Round::Deadlock,
        Fault::Lost(_) | Fault::Outage(_) => Round::Outage(fault),
    }
}

fn places<T>(all: &[T], which: impl Fn(&T) -> bool) -> Vec<usize> {
    (0..all.len()).filter(|place| which(&all[*place])).collect()
}
