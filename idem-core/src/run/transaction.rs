//! The run of one work by itself, and one transaction of any slice of works: begun with the claims of deliveries or the starts of
//! inbox rows, the calls of the handlers, commit. The deliveries of natural handlers have no claims.

use std::iter;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::slice;
use std::time::Duration;

use futures_util::FutureExt;
use smallvec::{SmallVec, smallvec};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span};

use crate::caught::dropped;
use crate::panic_text::panic_text;
use crate::registry::{Job, NoJob};
use crate::routes::Route;
use crate::runtime::{Ended, Pipeline, Running, Wait};
use crate::store::{ClaimState, HandlerMark, Identity, Row, StoreError, TxnState};
use crate::take_over::{Classified, Entry};
use crate::telemetry::Meters;
use crate::{BoxError, Delivery, Engine, Store, telemetry};

use super::stage::Staged;
use super::{Failure, Found, Indices, Work};

/// How a transaction has ended, before anyone is blamed for it.
pub(super) struct Round {
    pub(super) ended: Ended,
    /// What each work is by its claim or its row, once the handlers were called.
    pub(super) found: Found,
    /// The works of the last call. Of a slice that did not begin, those that it has to leave.
    pub(super) indices: Indices,
    /// Whether all calls had returned.
    pub(super) returned: bool,
    /// Whether the transaction is known to have been open before the last call: if a handler has ended it, then in that call.
    pub(super) was_open: bool,
}

impl From<Ended> for Round {
    fn from(ended: Ended) -> Self {
        Self::at(ended, Indices::new())
    }
}

impl Round {
    /// A transaction that has ended in the call of these works.
    pub(super) fn at(ended: Ended, indices: Indices) -> Self {
        Self { ended, found: Found::new(), indices, returned: false, was_open: false }
    }
}

/// One call of a handler, for the works with these indices.
struct Call<'a, S: Store> {
    indices: Indices,
    route: &'a Route<S>,
    job: Box<dyn Job<S>>,
}

type Calls<'a, S> = SmallVec<[Call<'a, S>; 1]>;

impl<S: Store> Pipeline<S> {
    /// Runs one work, again if it has lost a race, and returns what became of it. A failure is recorded as its attempt. Nothing
    /// but the effects of its handler is written: whoever has the message records the failure.
    pub(crate) async fn run_one(&self, work: &mut Work<'_, S>, running: &Running) -> Ended {
        let (route, attempts) = (work.route, work.row.map_or(0, |row| row.attempts));
        let works = slice::from_mut(work);
        for rounds in 0.. {
            if let Some(round) = self.unready(works, running) {
                return round.ended;
            }
            let ended = match self.transaction(works, running).await {
                Ok(round) => round.ended,
                Err(fault) => return self.outage.hold_for(fault),
            };
            if let Some(ended) = self.conclude(route, ended, attempts, rounds) {
                return ended;
            }
        }
        Ended::Stopped
    }

    /// Decodes the messages that an earlier transaction has taken, before the next one is open. Returns what ends the slice if one
    /// of them cannot run.
    pub(super) fn unready(&self, works: &mut [Work<'_, S>], running: &Running) -> Option<Round> {
        for (index, work) in works.iter_mut().enumerate().filter(|(_, work)| work.job.is_none()) {
            let Some(_user_code) = running.user_code() else { return Some(Ended::Park(Wait::Free).into()) };
            let ended = match self.decode_again(work) {
                Ok(()) => continue,
                Err(NoJob::Undeliverable(undeliverable)) => Ended::Failed(Failure::undeliverable(undeliverable)),
                Err(NoJob::Unprepared) => Ended::Park(Wait::Codec),
            };
            return Some(Round::at(ended, smallvec![index]));
        }
        None
    }

    /// Runs these works in one transaction. Unless it is `Done`, or the connection broke, nothing of it is in the
    /// database, except what natural handlers have written before one of them ran COMMIT, and what was written for a single
    /// delivery that is not new.
    ///
    /// # Errors
    /// One of idem's own statements has failed before any handler ran, and nothing is written.
    pub(super) async fn transaction(&self, works: &mut [Work<'_, S>], running: &Running) -> Result<Round, StoreError> {
        let began = Instant::now();
        let opened = self.open(works).await;
        let now = Instant::now();
        let are_rows = works[0].row.is_some();
        if !are_rows {
            meters(works).for_each(|meters| meters.claim.record(now - began));
        }
        let (txn, found) = opened?;
        let mut new = which(&found, |classified| *classified == Classified::New);
        if let [only] = &mut *works {
            if new.is_empty() {
                return Ok(self.not_new(txn, only, &found[0]).await.into());
            }
            let (waited, meters) = (only.waited.take(), &only.route.meters);
            waited.into_iter().for_each(|waited| meters.inbox_wait.record(waited + (now - began)));
        } else {
            // A message that is too old and a conflict need a row, and a removed claim has to be inserted again: each by itself.
            let odd = which(&found, |classified| match classified {
                Classified::New | Classified::Duplicate(_) => false,
                Classified::Gone => !are_rows,
                Classified::TooOld(_) | Classified::Conflict(_) => true,
            });
            if !odd.is_empty() {
                return self.without(txn, odd).await;
            }
        }
        let calls = calls(works, &mut new);
        // A message that is claimed here and does not run would be lost.
        if calls.iter().map(|call| call.indices.len()).sum::<usize>() != new.len() {
            return self.without(txn, new).await;
        }
        let round = self.call_all(txn, calls, works, now, running).await;
        Ok(Round { found, ..round })
    }

    /// Rolls back a transaction in which these works cannot be.
    async fn without(&self, txn: S::Txn, indices: Indices) -> Result<Round, StoreError> {
        self.store.rollback(txn).await?;
        Ok(Round::at(Ended::Again(None), indices))
    }

    /// Ends the transaction of a single message that is not new, in which nothing was written. A copy is known by the answer to its
    /// claim. Any other delivery is taken over by another transaction: it needs a row.
    async fn not_new(&self, txn: S::Txn, work: &mut Work<'_, S>, found: &Classified) -> Ended {
        let rolled_back = self.store.rollback(txn).await.map_err(|fault| self.outage.hold_for(fault));
        match (rolled_back, found) {
            // Another process has the row now. Our start of it was not a crash, and is refunded.
            _ if work.row.is_some() => Ended::Lost,
            (Err(held), _) => held,
            (Ok(_), Classified::Duplicate(_)) => found.ended(&work.route.meters),
            (Ok(_), _) => self.take_over_one(&Entry::due(work.identity.clone(), work.delivery)).await,
        }
    }

    /// Begins the transaction of these works, and returns what each of them is. On an error, none is open.
    async fn open(&self, works: &mut [Work<'_, S>]) -> Result<(S::Txn, Found), StoreError> {
        // Each call has the timeout of its handler. The limits of the transaction must leave room for every call.
        let longest = works.iter().map(|work| work.route.timeout).max().unwrap_or_default();
        if works[0].row.is_some() {
            let rows: SmallVec<[&Row; 1]> = works.iter().filter_map(|work| work.row).collect();
            return self.start(longest, &rows).await;
        }
        for Work { route, .. } in works.iter_mut() {
            if route.is_unclaimed {
                // Before the first message that leaves no claim: without any record, a consumer whose place at the broker is gone
                // would look like a new one.
                let record = || async { self.store.mark(&[route.id], HandlerMark::Processes).await.map(drop) };
                route.history.get_or_try_init(record).await?;
            }
        }
        if let [work] = works {
            // A natural handler has no claim, unless there is an order: then its message is new.
            let claim = (!work.route.is_unclaimed).then_some(&work.identity);
            let (txn, claimed) = self.store.begin_first(work.route.timeout, claim).await?;
            let found = claim.map_or(Classified::New, |_| self.classify(work.message(), claimed));
            return Ok((txn, smallvec![found]));
        }
        let messages: Vec<_> = works.iter().map(Work::message).collect();
        let mut txn = self.store.begin(longest).await?;
        match self.claims(&mut txn, &messages, ClaimState::Processed).await {
            Ok(found) => Ok((txn, found.into())),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// Starts the rows: deletes them and dates their claims. A row whose lease was lost is gone.
    async fn start(&self, timeout: Duration, rows: &[&Row]) -> Result<(S::Txn, Found), StoreError> {
        // All connections may be in use for longer than the lease. From the start on, the rows are locked.
        let held = self.leases.hold(rows.iter().copied());
        let mut txn = self.store.begin(timeout).await?;
        drop(held);
        let found = |started| if started { Classified::New } else { Classified::Gone };
        match self.store.start(&mut txn, rows, ClaimState::Processed).await {
            Ok(started) => Ok((txn, started.into_iter().map(found).collect())),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// Calls the handlers, one after another, collects what they stage, and commits. If an orphaned row comes first, no further
    /// handler is called. The timeout of the first one starts `now`.
    async fn call_all(
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
        let (mut last, mut was_open, mut returned) = (Indices::new(), true, now);
        let mut calls = calls.into_iter();
        while let Some(call) = calls.next() {
            if !last.is_empty() {
                match self.store.check_between(&mut txn).await {
                    Ok(TxnState::Open) => was_open = true,
                    // Nothing can be written behind the end of the transaction, so no later call needs to be prevented.
                    Ok(TxnState::Unknown) => was_open = false,
                    ended => {
                        leave(iter::once(call).chain(calls));
                        let ended = match ended {
                            Err(fault) => Ended::Broke(fault),
                            Ok(_) => self.undo(txn, Some("the handler ended the transaction".into())).await,
                        };
                        return Round { was_open: true, ..Round::at(ended, last) };
                    }
                }
                now = Instant::now();
            }
            let Some(user_code) = running.user_code() else {
                leave(iter::once(call).chain(calls));
                return Round::at(self.undo(txn, None).await, last);
            };
            let Call { indices, route, job } = call;
            let (message, is_alone) = (works[indices[0]].message(), works.len() == 1);
            let handled = pin!(self.call_one(route, job, message, is_alone, &mut txn, &mut staged)).await;
            returned = Instant::now();
            route.meters.handler.record(returned - now);
            if let Some(Ok(())) = handled {
                last = indices;
                continue;
            }
            // Before the end of the transaction, which may take as long as an outage: an orphaned row may run concurrently with
            // that.
            leave(calls);
            drop(user_code);
            let ended = match handled.and_then(Result::err) {
                Some(error) => self.undo(txn, Some(error)).await,
                None => self.unreturned(txn, route.timeout).await,
            };
            return Round { was_open, ..Round::at(ended, indices) };
        }
        let ran = self.commit(txn, staged).await;
        let took = returned.elapsed();
        meters(works).for_each(|meters| meters.commit.record(took));
        Round { returned: true, was_open, ..Round::at(ran, last) }
    }

    /// Calls one handler, and adds what it stages. `message`: the first of the call. Returns `None` as [`handle`](Self::handle)
    /// does.
    async fn call_one(
        &self,
        route: &Route<S>,
        job: Box<dyn Job<S>>,
        message: (&Identity, &Delivery),
        is_alone: bool,
        txn: &mut S::Txn,
        staged: &mut Staged,
    ) -> Option<Result<(), BoxError>> {
        // A message that runs alone has its span already.
        let span = match is_alone || route.handler.facts().takes_batch {
            true => Span::none(),
            false => self.span_of(route.handler.facts().name, message),
        };
        let outbox = job.outbox().cloned();
        let handled = pin!(self.handle(route, job, txn)).instrument(span.clone()).await;
        match (handled, outbox) {
            // In its span, which the messages name as their parent.
            (Some(Ok(())), Some(outbox)) => Some(span.in_scope(|| self.stage(staged, route, message, &outbox))),
            (handled, _) => handled,
        }
    }

    /// Returns the span of a row, or that in which the handler is called for one delivery of a batch, whose ack has another one.
    pub(crate) fn span_of(&self, handler: &str, (identity, delivery): (&Identity, &Delivery)) -> Span {
        let span = telemetry::span(self.system, &self.consumer, delivery);
        span.record("idem.handler", handler);
        span.record("idem.key", tracing::field::display(&identity.key));
        span
    }
}

impl<S: Engine> Pipeline<S> {
    /// Runs the handler under its timeout, starting now. Returns `None` if it was dropped before it had returned, because it was
    /// late or the worker stops. This is the only place where a panic of a handler is caught.
    pub(crate) async fn handle(
        &self,
        route: &Route<S>,
        job: Box<dyn Job<S>>,
        lent: &mut S::Lent,
    ) -> Option<Result<(), BoxError>> {
        let outbox = job.outbox().cloned();
        let mut run = job.run(lent);
        // tokio limits how much a task does in one turn. A handler that never waits uses that up in each turn, and its timeout
        // would not even be looked at.
        let late = pin!(unconstrained(sleep(route.timeout)));
        let handled = tokio::select! {
            biased;
            ran = AssertUnwindSafe(&mut run).catch_unwind() => match ran {
                Ok(result) => Some(result),
                Err(panic) => {
                    let text = panic_text(panic.as_ref());
                    dropped("the payload of a panic", panic);
                    Some(Err(format!("the handler panicked: {text}").into()))
                }
            },
            () = late => None,
            () = self.stop.cancelled() => None,
        };
        // The drop runs user code too, and its panic must cost no more than its message.
        dropped("a handler", run);
        // A task that the handler has spawned may outlive it.
        if let Some(outbox) = outbox {
            outbox.end(route.handler.facts().name);
        }
        handled
    }
}

/// Returns the calls for the new works, in the order of their arrival. A batch handler is called once, behind the others. Works
/// whose messages cannot be joined have no call.
fn calls<'a, S: Store>(works: &mut [Work<'a, S>], new: &mut [usize]) -> Calls<'a, S> {
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

/// Drops the messages of calls that are not made.
fn leave<'a, S: Store>(calls: impl Iterator<Item = Call<'a, S>>) {
    calls.for_each(|call| dropped("a message", call.job));
}

/// Returns the indices of the works that were found like this.
fn which(found: &[Classified], is_so: impl Fn(&Classified) -> bool) -> Indices {
    found.iter().enumerate().filter(|(_, classified)| is_so(classified)).map(|(index, _)| index).collect()
}

/// Returns the metrics of each handler of these works, which are sorted by handler.
fn meters<'w, S: Store>(works: &'w [Work<'_, S>]) -> impl Iterator<Item = &'w Meters> {
    works.chunk_by(|one, next| one.identity.handler == next.identity.handler).map(|chunk| &chunk[0].route.meters)
}
