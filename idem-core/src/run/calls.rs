//! The calls of handlers in one transaction.

use std::pin::pin;

use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use crate::caught::dropped;
use crate::registry::Job;
use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Running};
use crate::store::{Identity, TxnState};
use crate::{Delivery, Store, telemetry};

use super::stage::Staged;
use super::transaction::{Round, meters};
use super::{Indices, Work};

/// One call of a handler, for the works with these indices.
pub(super) struct Call<'a, S: Store> {
    pub(super) indices: Indices,
    route: &'a Route<S>,
    job: Box<dyn Job<S>>,
}

pub(super) type Calls<'a, S> = SmallVec<[Call<'a, S>; 1]>;

/// Returns the calls for the new works, in the order of their arrival. A batch handler is called once, behind the others. Works
/// whose messages cannot be joined have no call.
pub(super) fn calls<'a, S: Store>(works: &mut [Work<'a, S>], new: &mut [usize]) -> Calls<'a, S> {
    new.sort_unstable_by_key(|index| works[*index].at);
    let (mut calls, mut batched) = (Calls::new(), Vec::<(&'a Route<S>, Indices, Vec<_>)>::new());
    for &index in &*new {
        let route = works[index].route;
        let Some(job) = works[index].job.take() else { continue };
        if !route.handler.facts().takes_batch || new.len() == 1 {
            calls.push(Call { indices: smallvec![index], route, job });
            continue;
        }
        match batched.iter_mut().find(|(of, ..)| of.id == route.id) {
            Some((_, indices, jobs)) => {
                indices.push(index);
                jobs.push(job);
            }
            None => batched.push((route, smallvec![index], vec![job])),
        }
    }
    for (route, indices, jobs) in batched {
        calls.extend(route.handler.join(jobs).map(|job| Call { indices, route, job }));
    }
    calls
}

/// Drops messages whose handlers are not called. That is user code, and may panic for each of them.
fn leave<'a, S: Store>(next: Option<Box<dyn Job<S>>>, others: impl Iterator<Item = Call<'a, S>>) {
    next.into_iter().chain(others.map(|call| call.job)).for_each(|job| dropped("a message", job));
}

impl<S: Store> Pipeline<S> {
    /// Calls the handlers, one after another, collects what they stage, and commits. If a suspect comes first, no further
    /// handler is called. The timeout of the first one starts `now`.
    pub(super) async fn call_all(
        &self,
        mut txn: S::Txn,
        calls: Calls<'_, S>,
        works: &mut [Work<'_, S>],
        mut now: Instant,
        running: &Running,
    ) -> Round {
        let mut staged = Staged::default();
        // The works of the last call, and whether it is known that all calls before it have left the transaction open: if it has
        // ended, then by that one.
        let (mut last, mut was_open, mut returned) = (Indices::new(), true, now.into_std());
        let mut calls = calls.into_iter();
        while let Some(Call { indices, route, job }) = calls.next() {
            if !last.is_empty() {
                match self.store.check_between(&mut txn).await {
                    Ok(TxnState::Open) => was_open = true,
                    // Nothing can be written behind the end of the transaction, so no later call needs to be prevented.
                    Ok(TxnState::Unknown) => was_open = false,
                    Ok(TxnState::Ended) => {
                        leave(Some(job), calls);
                        let ended = self.undo(txn, Some("the handler ended the transaction".into())).await;
                        return Round { was_open: true, ..Round::at(ended, last) };
                    }
                    Err(fault) => {
                        leave(Some(job), calls);
                        return Round::at(Ended::Broke(fault), last);
                    }
                }
                now = Instant::now();
            }
            let Some(user_code) = running.user_code() else {
                leave(Some(job), calls);
                return Round::at(self.undo(txn, None).await, last);
            };
            // A message that runs alone has its span already.
            let span = match works.len() == 1 || route.handler.facts().takes_batch {
                true => Span::none(),
                false => self.call_span(route, works[indices[0]].message()),
            };
            let outbox = job.outbox().cloned();
            let mut handled = pin!(self.handle(route, job, &mut txn)).instrument(span.clone()).await;
            returned = std::time::Instant::now();
            route.meters.handler.record(returned.saturating_duration_since(now.into_std()));
            if let (Some(Ok(())), Some(outbox)) = (&handled, outbox) {
                // In its span, which the messages name as their parent.
                let stage = || self.stage(&mut staged, route, works[indices[0]].message(), &outbox);
                handled = Some(span.in_scope(stage));
            }
            if let Some(Ok(())) = handled {
                last = indices;
                continue;
            }
            // Before the end of the transaction, which may take as long as an outage: the drop of a message is user code, and a
            // suspect may run beside what comes then.
            leave(None, calls);
            drop((user_code, span));
            let ended = match handled.and_then(Result::err) {
                Some(error) => self.undo(txn, Some(error)).await,
                None => self.unreturned(txn, route.timeout).await,
            };
            return Round { was_open, ..Round::at(ended, indices) };
        }
        let ran = self.commit(txn, staged).await;
        // The clock is that of the health, which counts on while a test pauses Tokio's.
        let committed = std::time::Instant::now();
        if matches!(ran, Ended::Done(_)) {
            // Here, so that `emit` does not read the clock once more for a processed message.
            self.health.progress_at(committed);
        }
        let took = committed.saturating_duration_since(returned);
        meters(works).for_each(|meters| meters.commit.record(took));
        Round { returned: true, was_open, ..Round::at(ran, last) }
    }

    /// Returns the span in which the handler is called for one message. The ack of the message has another one.
    fn call_span(&self, route: &Route<S>, (identity, delivery): (&Identity, &Delivery)) -> Span {
        let span = telemetry::span(self.system, &self.consumer, delivery);
        span.record("idem.handler", route.handler.facts().name);
        span.record("idem.key", tracing::field::display(&identity.key));
        span
    }
}
