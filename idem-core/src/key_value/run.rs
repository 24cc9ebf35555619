//! One try of a delivery: its record is acquired, its handler runs, and the record is completed, or buried.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_channel::{Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::caught::dropped;
use crate::park::{Arrival, Carried, Parked};
use crate::registry::{NoJob, Undeliverable};
use crate::routes::Route;
use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Wait, warn_of_refusal};
use crate::store::{Answer, Identity, StoreError};
use crate::worker::{self, Queues};
use crate::{Acker, BoxError, Delivery, Fingerprint, Key, Outcome, Reason, age};

use super::lease::Lease;
use super::{Acquired, Completed, Held, Id, KeyValue, KeyValueStore, Lent, Letter};

/// A message whose process has ended so often while it ran is not started again.
const MAX_STARTS: u32 = 4;

/// The waits for the lease of somebody else. It may be renewed, released or completed at any time.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(10);

/// The longest wait for the next attempt: the delivery is unacked meanwhile, and brokers limit that.
pub(super) const LONGEST_HELD: Duration = Duration::from_secs(5 * 60);

/// How long giving a lease up may take. If it fails, the lease runs out.
const GIVE_UP: Duration = Duration::from_secs(2);

/// How often the settings of the store are checked: an operator may change them.
const CHECK: Duration = Duration::from_secs(60);

/// Spawns the lanes, the renewal of leases and the check of the store.
pub(super) fn spawn<K: KeyValueStore, A: Acker>(
    pipeline: &Arc<Pipeline<KeyValue<K>>>,
    queues: &Queues<A>,
    working: &mut JoinSet<()>,
    beside: &mut JoinSet<()>,
) {
    for _ in 0..pipeline.settings.concurrency {
        working.spawn(lane(pipeline.clone(), queues.lanes.clone(), queues.parked.clone()));
    }
    worker::spawn(beside, pipeline, "leases", |at| async move { at.renew_leases().await });
    worker::spawn(beside, pipeline, "check of the store", |at| async move { at.check_store().await });
}

/// Takes deliveries until the queue is closed and empty. A panic ends the worker; one of user code is caught elsewhere.
async fn lane<K: KeyValueStore, A: Acker>(
    pipeline: Arc<Pipeline<KeyValue<K>>>,
    deliveries: Receiver<Arrival<A>>,
    parked: Sender<Parked<A>>,
) {
    while let Ok(arrival) = deliveries.recv().await {
        pipeline.metrics.in_flight.increment(1.0);
        let delivered = pin!(pipeline.deliver(None, arrival, &parked));
        pipeline.defect.task("lane", delivered).await;
        pipeline.metrics.in_flight.decrement(1.0);
    }
}

impl<K: KeyValueStore> Pipeline<KeyValue<K>> {
    fn keep(&self) -> Duration {
        self.store.retention
    }

    /// Looks at the settings of the store, until the future is dropped.
    async fn check_store(&self) {
        loop {
            sleep(CHECK).await;
            self.outage.over().await;
            if let Err(error) = self.store.store.check(self.keep()).await {
                self.outage.report(&StoreError::Unavailable(error.into()));
            }
        }
    }

    /// Repeats a step until the store has answered. `None`: the worker has stopped before that.
    ///
    /// # Errors
    /// The store refuses it for this message.
    async fn answered<T, F: Future<Output = Answer<T>>>(&self, step: impl Fn() -> F) -> Option<Result<T, BoxError>> {
        let step = || async {
            match step().await {
                Err(StoreError::Message(error)) => Ok(Err(error)),
                answer => answer.map(Ok),
            }
        };
        self.outage.retry_until_answered(&self.stop, step).await
    }

    /// Returns the lease of this record: that of an earlier try, or a new one.
    fn lease<'c>(&self, carried: &'c mut Carried, id: Id) -> &'c mut Lease {
        let lease = carried.lease.take().filter(|lease| lease.id == id);
        carried.lease.insert(lease.unwrap_or_else(|| self.held.lease(id)))
    }

    /// Acquires the record, under the token of an earlier try if there was one.
    async fn acquire(&self, carried: &mut Carried, id: Id, fingerprint: Fingerprint) -> Answer<Acquired> {
        let lease = self.lease(carried, id);
        // Until the answer is there, it may be.
        lease.may_be_held = true;
        let (store, token) = (&self.store.store, lease.token);
        let acquired = store.acquire(&lease.id, fingerprint, token, self.settings.lease, self.keep()).await?;
        match acquired {
            Acquired::New { .. } | Acquired::HalfApplied(_) => lease.hold(),
            Acquired::Busy { .. } => lease.may_be_held = false,
            Acquired::Done { .. } => carried.lease = None,
        }
        Ok(acquired)
    }

    /// Tries to process a delivery. These are the steps, in their order; the store's answers decide the result.
    pub(super) async fn try_once(&self, delivery: &mut Delivery, carried: &mut Carried) -> Result<Ended, Ended> {
        delivery.attempt = carried.lease.as_ref().map_or(0, |lease| lease.attempts) + 1;
        let delivery = &*delivery;
        // User code, beside no orphaned row of another worker that has the process to itself.
        let beside = self.direct().await?;
        let mut work = match self.decode(delivery) {
            Ok(work) => work,
            Err(NoJob::Unprepared) => return Err(Ended::Park(Wait::Codec)),
            Err(NoJob::Undeliverable(undeliverable)) => {
                drop(beside);
                return Ok(self.bury_undeliverable(delivery, carried, undeliverable).await);
            }
        };
        let identity = work.identity.clone();
        carried.identity = Some(identity.clone());
        if !carried.keys.take(&self.key_locks, [(identity.handler, &identity.key)]) {
            dropped("a message", work.job.take());
            return Err(Ended::Park(Wait::Key));
        }
        if let Some(failure) = carried.unrecorded.take() {
            dropped("a message", work.job.take());
            return Ok(self.bury(delivery, carried, &identity, *failure).await);
        }
        if !self.outage.is_up() {
            dropped("a message", work.job.take());
            return Err(Ended::Park(Wait::Free));
        }
        let (route, began) = (work.route, Instant::now());
        let acquired = self.acquire(carried, self.id(&identity), identity.fingerprint).await;
        route.meters.claim.record(began.elapsed());
        let failure = match (acquired, work.job.take()) {
            (Ok(Acquired::New { starts, now }), Some(job)) => match self.unfit(route, delivery, carried, starts, now) {
                Some(failure) => {
                    dropped("a message", job);
                    Err(failure)
                }
                None => {
                    let (mut lent, began) = (Lent::default(), Instant::now());
                    let handled = pin!(self.handle(route, job, &mut lent)).await;
                    route.meters.handler.record(began.elapsed());
                    drop(beside);
                    match handled {
                        Some(Ok(())) => self.complete_run(route, carried, &lent).await,
                        Some(Err(error)) => Err(Failure::returned(error)),
                        None if self.stop.is_cancelled() => Ok(Ended::Stopped),
                        None => Err(Failure::late(route.timeout)),
                    }
                }
            },
            (acquired, job) => {
                dropped("a message", job);
                match acquired {
                    Err(fault) => Ok(self.outage.hold_for(fault)),
                    Ok(Acquired::Busy { left }) => Ok(Ended::Park(Wait::After(left.clamp(SHORTEST, LONGEST)))),
                    Ok(Acquired::Done { fingerprint, age }) if identity.is_copy(fingerprint) => {
                        route.meters.duplicate_age.record(age);
                        Ok(Ended::Done(Outcome::Duplicate))
                    }
                    Ok(Acquired::Done { .. }) => return Ok(self.bury_conflict(delivery, carried, &identity).await),
                    Ok(Acquired::HalfApplied(why)) => Err(half_applied(&why)),
                    Ok(Acquired::New { .. }) => Ok(Ended::Park(Wait::Free)),
                }
            }
        };
        match failure {
            Ok(ended) => Ok(ended),
            Err(failure) => Ok(self.failed(route, delivery, carried, &identity, failure).await),
        }
    }

    /// Returns why a message that was acquired must not run.
    fn unfit(
        &self,
        route: &Route<KeyValue<K>>,
        delivery: &Delivery,
        carried: &Carried,
        starts: u32,
        now: SystemTime,
    ) -> Option<Failure> {
        if starts > MAX_STARTS {
            let error = format!(
                "the process ended {MAX_STARTS} times while the message ran, in it or in another one beside it, or was killed as often. If it \
                 was in another one, resolve this letter with `Replay`, and publish the message again"
            );
            return Some(Failure::undeliverable(Undeliverable::new(Reason::Crashed, error)));
        }
        // Only without a record is it unknown whether it was processed.
        let has_record = starts > 1 || carried.lease.as_ref().is_some_and(|lease| lease.attempts > 0);
        let through = now.checked_sub(self.keep()).filter(|_| !has_record)?;
        age::too_old(through, delivery.published_at(), route.retention, false)?;
        let error = format!(
            "it was published longer ago than records are kept, {}, so it is unknown whether it was processed. If it was not, resolve \
             this letter with `Replay`, and publish the message again",
            age::shown(self.keep())
        );
        Some(Failure::undeliverable(Undeliverable::new(Reason::TooOld, error)))
    }

    /// Completes a message whose handler has returned. The step is repeated, and the run is not, until there is an answer.
    async fn complete_run(
        &self,
        route: &Route<KeyValue<K>>,
        carried: &mut Carried,
        lent: &Lent<K::Writes>,
    ) -> Result<Ended, Failure> {
        let Some(lease) = &carried.lease else { return Ok(Ended::Park(Wait::Claim)) };
        let began = Instant::now();
        let complete = || self.store.store.complete(&lease.id, lease.token, self.keep(), &lent.writes);
        let completed = self.answered(complete).await;
        route.meters.commit.record(began.elapsed());
        match completed {
            Some(Ok(Completed::Yes)) => {
                carried.lease = None;
                Ok(Ended::Done(Outcome::Processed))
            }
            Some(Ok(Completed::Lost)) => Ok(self.lost(carried, route, false)),
            Some(Ok(Completed::Refused(why))) => Err(Failure::new(Ok(Duration::ZERO), why)),
            Some(Ok(Completed::HalfApplied(why))) => Err(half_applied(&why)),
            Some(Err(error)) => Err(Failure::returned(error)),
            None => Ok(Ended::Stopped),
        }
    }

    /// Counts a lease that was lost. The delivery starts over: the message is now somebody else's, or already done.
    fn lost(&self, carried: &mut Carried, route: &Route<KeyValue<K>>, is_half: bool) -> Ended {
        carried.lease = None;
        route.meters.lost.increment(1);
        let repeats = match route.handler.is_best_effort() {
            _ if is_half => "some of its writes were applied",
            true => "its effect may be repeated",
            false => "nothing of it was written",
        };
        tracing::warn!(
            handler = route.handler.facts().name,
            "the lease of a message ended while its handler ran, because the store was away or the process hung; {repeats}"
        );
        Ended::Park(Wait::Claim)
    }

    /// Counts a failed attempt. The message waits here for the next one, with its lease, or becomes a dead letter.
    async fn failed(
        &self,
        route: &Route<KeyValue<K>>,
        delivery: &Delivery,
        carried: &mut Carried,
        identity: &Identity,
        failure: Failure,
    ) -> Ended {
        let before = carried.lease.as_ref().map_or(0, |lease| lease.attempts);
        let failure = if failure.is_undeliverable() { failure } else { failure.counted(before, &route.retry) };
        match failure.next {
            Err(_) => self.bury(delivery, carried, identity, failure).await,
            Ok(delay) => {
                if let Some(lease) = &mut carried.lease {
                    lease.attempts = failure.attempts;
                }
                route.meters.count(&failure.logged_with(None, || "it waits unacked in this worker".to_owned()));
                // It may be a number of another service.
                Ended::Park(Wait::After(delay.min(LONGEST_HELD)))
            }
        }
    }

    /// Makes a dead letter of a message whose lease this delivery has. Only this is repeated until it is written, never the run.
    async fn bury(&self, delivery: &Delivery, carried: &mut Carried, identity: &Identity, failure: Failure) -> Ended {
        let (Some(lease), Err(reason)) = (&carried.lease, failure.next) else { return Ended::Park(Wait::Claim) };
        let letter = Letter {
            id: lease.id.clone(),
            fingerprint: identity.fingerprint,
            reason,
            error: failure.error.clone(),
            attempts: failure.attempts,
            died_at: SystemTime::now(),
            delivery: delivery.clone(),
        };
        match self.answered(|| self.store.store.bury(&letter.id, lease.token, &letter)).await {
            Some(Ok(Held::Yes)) => {
                carried.lease = None;
                Ended::Done(failure.logged_with(None, || format!("KeyValue::dead, consumer {:?}", self.consumer)))
            }
            Some(Ok(Held::Lost)) => match self.routes.get(identity.handler) {
                Some(route) => self.lost(carried, route, reason == Reason::HalfApplied),
                None => Ended::Park(Wait::Claim),
            },
            Some(Err(error)) => {
                warn_of_refusal(delivery, None, error.as_ref());
                carried.unrecorded = letter.id.apart.is_none().then(|| Box::new(failure));
                Ended::Park(Wait::Refused(error))
            }
            None => Ended::Stopped,
        }
    }

    /// Makes a dead letter of a message that can never be passed to a handler, unless the kill switch holds it.
    async fn bury_undeliverable(
        &self,
        delivery: &Delivery,
        carried: &mut Carried,
        undeliverable: Undeliverable,
    ) -> Ended {
        let (reason, error) = (undeliverable.reason, undeliverable.error.clone());
        if self.kill_switch.holds(reason) {
            return Ended::Park(Wait::Free);
        }
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| route.id);
        let fingerprint = Fingerprint::of_keyless(delivery);
        let identity = Identity { handler, key: Key::empty(), fingerprint };
        let ended = self.bury_apart(delivery, carried, &identity, Failure::undeliverable(undeliverable)).await;
        carried.identity = Some(identity);
        if matches!(ended, Ended::Done(_)) {
            self.kill_switch.undeliverable(reason, &error);
        }
        ended
    }

    /// Makes a dead letter of a message whose key another one has.
    async fn bury_conflict(&self, delivery: &Delivery, carried: &mut Carried, identity: &Identity) -> Ended {
        let error = format!(
            "another message has the key {}: use the id of the event as the key, not of its entity. If it is the same event in \
             other bytes, give the handler a `fingerprint = ..` of its content",
            identity.key
        );
        let failure = Failure::undeliverable(Undeliverable::new(Reason::Conflict, error));
        self.bury_apart(delivery, carried, identity, failure).await
    }

    /// Makes a dead letter of a message that does not own its key, in a record of its own.
    async fn bury_apart(
        &self,
        delivery: &Delivery,
        carried: &mut Carried,
        identity: &Identity,
        failure: Failure,
    ) -> Ended {
        let id = Id { apart: Some(identity.fingerprint), ..self.id(identity) };
        match self.acquire(carried, id, identity.fingerprint).await {
            Ok(Acquired::New { .. } | Acquired::HalfApplied(_)) => {
                self.bury(delivery, carried, identity, failure).await
            }
            Ok(Acquired::Done { .. }) => Ended::Done(Outcome::Duplicate),
            Ok(Acquired::Busy { left }) => Ended::Park(Wait::After(left.clamp(SHORTEST, LONGEST))),
            Err(fault) => self.outage.hold_for(fault),
        }
    }

    /// Returns the id of a message.
    fn id(&self, identity: &Identity) -> Id {
        let handler = self.routes.get(identity.handler).map_or("", |route| route.handler.facts().name);
        Id { consumer: self.consumer.as_str().into(), handler: handler.into(), key: identity.key.clone(), apart: None }
    }

    /// Gives up the lease of a delivery that goes back to the broker, so that the next process need not wait for its end.
    pub(super) async fn give_up(&self, carried: &mut Carried) {
        let Some(lease) = carried.lease.take().filter(|lease| lease.may_be_held) else { return };
        match timeout(GIVE_UP, self.store.store.release(&lease.id, lease.token)).await {
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => tracing::debug!(error = %fault, "a lease was not given up, and runs out"),
            Err(_) => tracing::debug!("a lease was not given up in time, and runs out"),
        }
    }
}

fn half_applied(why: &str) -> Failure {
    let error = format!("some of its writes were applied, and then one failed: {why}");
    Failure::new(Err(Reason::HalfApplied), error)
}
