//! Taking a message over without processing it: parked, stored, dead, or known already.

mod many;

use std::time::Duration;

use crate::execute::Failure;
use crate::registry::{Route, Unfit};
use crate::runtime::{Hold, Pipeline, Step, UNANSWERED, unanswered};
use crate::store::{Claimed, Committed, Fault, HandlerId, Identity, NewRow, Promise, Standing};
use crate::{Delivery, Fingerprint, Key, Outcome, Reason, Store};

pub(crate) use many::{Kept, Known};

/// What a delivery is that found a claim.
pub(crate) enum Found {
    /// A copy of the message that holds the claim, which was processed so long ago (`None`: it is in the inbox).
    Duplicate(Option<Duration>),
    /// Another message under the same key; its row is in the transaction.
    Conflict,
    /// The claim was removed meanwhile; start again.
    Gone,
}

/// The answer to a claim that is looked at as far as it takes.
pub(crate) enum Promised {
    /// It is new; and why the message is too old all the same, if it is.
    New(Option<String>),
    /// It was there.
    Found(Found),
}

impl<S: Store> Pipeline<S> {
    /// Claims, or says what the delivery is. In the latter case the transaction holds nothing but the answer.
    pub(crate) async fn promise(
        &self,
        txn: &mut S::Txn,
        delivery: &Delivery,
        identity: &Identity,
        promise: Promise,
    ) -> Result<Promised, Fault> {
        match self.store.claim(txn, identity, promise).await? {
            Claimed::New { pruned_through } => {
                Ok(Promised::New(self.routes.too_old(identity.handler, delivery, pruned_through)))
            }
            Claimed::Found => self.found(txn, delivery, identity).await.map(Promised::Found),
        }
    }

    /// Begins a transaction with the claim, and says why the message is too old all the same, if it is. Where there is a
    /// claim already, the error is the step that answers it.
    pub(crate) async fn claimed(
        &self,
        route: &Route<S>,
        delivery: &Delivery,
        identity: &Identity,
        promise: Promise,
    ) -> Result<(S::Txn, Option<String>), Step> {
        let begun = self.store.begin_with_claim(self.settings.deadline, identity, promise).await;
        let (mut txn, claimed) = begun.map_err(|fault| self.hold_for(fault))?;
        if let Claimed::New { pruned_through } = claimed {
            return Ok((txn, self.routes.too_old(route.id, delivery, pruned_through)));
        }
        match self.found(&mut txn, delivery, identity).await {
            Ok(found) => Err(self.answer(txn, route, found).await),
            Err(fault) => Err(self.abandon(txn, fault).await),
        }
    }

    /// What a delivery is whose key has a claim. A conflict's row is in the transaction then.
    async fn found(&self, txn: &mut S::Txn, delivery: &Delivery, identity: &Identity) -> Result<Found, Fault> {
        // A copy of what was processed is told without a lock, and so without a write.
        let known = self.store.known(txn, &[identity]).await?.pop().flatten();
        if let Some(Standing { fingerprint, age: Some(age) }) = known
            && fingerprint == identity.fingerprint
        {
            return Ok(Found::Duplicate(Some(age)));
        }
        let Some(standing) = self.store.standing(txn, identity.handler, &identity.key).await? else {
            return Ok(Found::Gone);
        };
        if standing.fingerprint == identity.fingerprint {
            if standing.age.is_none() {
                self.store.sight(txn, identity).await?;
            }
            return Ok(Found::Duplicate(standing.age));
        }
        self.conflict(txn, delivery, identity).await?;
        Ok(Found::Conflict)
    }

    /// Commits what [`promise`](Self::promise) found.
    pub(crate) async fn answer(&self, txn: S::Txn, route: &Route<S>, found: Found) -> Step {
        if let Err(fault) = settled(self.store.commit(txn).await) {
            return self.hold_for(fault);
        }
        match found {
            Found::Duplicate(age) => {
                age.into_iter().for_each(|age| route.meters.duplicate_age(age));
                Step::Done(Outcome::Duplicate)
            }
            Found::Conflict => Step::Done(Outcome::Dead { reason: Reason::Conflict }),
            Found::Gone => Step::Hold(Hold::Again),
        }
    }

    /// Stores a redelivered message before it runs: a process may have died on it, and only the inbox counts that.
    pub(crate) async fn store_first(&self, delivery: &Delivery, identity: &Identity) -> Step {
        self.record(delivery, identity, 0, Ok(Duration::ZERO), "").await
    }

    /// Stores a message to be run after this time.
    pub(crate) async fn store_for_later(&self, delivery: &Delivery, identity: &Identity, after: Duration) -> Step {
        self.record(delivery, identity, 0, Ok(after), "").await
    }

    /// Parks a message whose first run has failed, or gives it up. Where that cannot be written now, it alone is tried again,
    /// and never the run: a handler whose last statement still holds the claim would run anew without being charged. A drain
    /// ends that, and the delivery comes again. Where the database refuses it, the delivery leaves its lane, and is stored
    /// before it runs again.
    pub(crate) async fn charge(&self, delivery: &Delivery, identity: &Identity, failure: &Failure) -> Step {
        let mut tries = 0;
        loop {
            let state = self.next(1, failure);
            match self.record(delivery, identity, 1, state, &failure.error).await {
                Step::Hold(_) if self.draining.is_cancelled() => return Step::Stopped,
                Step::Refused { error, .. } => return Step::Refused { error, ran: true },
                Step::Hold(Hold::Lost) if tries >= UNANSWERED => {
                    return Step::Refused { error: unanswered(), ran: true };
                }
                Step::Hold(hold) => {
                    self.meters(delivery).held();
                    self.hold(hold, tries).await;
                    tries += 1;
                }
                step => return step,
            }
        }
    }

    /// Gives a message up that is too old. The claim of this transaction says that the message is processed, so that another
    /// one takes it over.
    pub(crate) async fn bury_too_old(&self, txn: S::Txn, delivery: &Delivery, identity: &Identity, why: &str) -> Step {
        if let Err(fault) = self.store.rollback(txn).await {
            return self.hold_for(fault);
        }
        self.record(delivery, identity, 0, Err(Reason::TooOld), why).await
    }

    /// When a message runs again that has failed so often, or why it does not.
    pub(crate) fn next(&self, attempts: u32, failure: &Failure) -> Result<Duration, Reason> {
        match failure.given_up {
            Some(reason) => Err(reason),
            None => self.settings.retry.after(attempts).ok_or(Reason::Exhausted),
        }
    }

    /// Claim first, then the row, in one transaction.
    async fn record(
        &self,
        delivery: &Delivery,
        identity: &Identity,
        attempts: u32,
        state: Result<Duration, Reason>,
        error: &str,
    ) -> Step {
        let Some(route) = self.routes.get(identity.handler) else { return Step::Stopped };
        let (mut txn, old) = match self.claimed(route, delivery, identity, Promise::Waiting).await {
            Ok(claimed) => claimed,
            Err(step) => return step,
        };
        // What is dead already keeps its reason.
        let (state, error) = match old.as_deref() {
            Some(why) if state.is_ok() => (Err(Reason::TooOld), why),
            _ => (state, error),
        };
        let row = NewRow { identity, delivery, attempts, state, error };
        if let Err(fault) = self.store.insert(&mut txn, &row).await {
            return self.abandon(txn, fault).await;
        }
        if let Err(fault) = settled(self.store.commit(txn).await) {
            return self.hold_for(fault);
        }
        Step::Done(match state {
            Ok(due) => {
                self.parked.notify_one();
                Outcome::Parked { attempt: attempts, due }
            }
            Err(reason) => Outcome::Dead { reason },
        })
    }

    /// Keeps a delivery whole for which no key could be made. It is known by the hash of all that makes the message.
    pub(crate) async fn bury(&self, delivery: &Delivery, unfit: Unfit) -> Step {
        if self.brake.holds(&unfit) {
            return Step::Hold(Hold::Unfit);
        }
        let handler = self.routes.find(delivery).map_or(self.routes.nobody, |route| route.id);
        let identity = claimless(handler, delivery);
        let state = Err(unfit.reason);
        let row = NewRow { identity: &identity, delivery, attempts: 0, state, error: &unfit.error };
        let mut txn = match self.store.begin(self.settings.deadline).await {
            Ok(txn) => txn,
            Err(fault) => return self.hold_for(fault),
        };
        if let Err(fault) = self.store.insert(&mut txn, &row).await {
            return self.abandon(txn, fault).await;
        }
        match settled(self.store.commit(txn).await) {
            Ok(()) => {
                self.brake.unfit(&unfit);
                Step::Done(Outcome::Dead { reason: unfit.reason })
            }
            Err(fault) => self.hold_for(fault),
        }
    }

    /// Gives a message up whose handler ran COMMIT. Its claim stands, so that it would pass for processed if this were
    /// not written: goes on until the database has answered, also when the worker stops, for as long as that lets it.
    pub(crate) async fn committed_early(&self, delivery: &Delivery, identity: &Identity, attempts: u32) -> Outcome {
        let error = "the handler ended the transaction by COMMIT, so that effects may stand: let idem commit";
        let row = NewRow { identity, delivery, attempts, state: Err(Reason::Committed), error };
        let write = || async {
            let mut txn = self.store.begin(self.settings.deadline).await?;
            self.store.reopen(&mut txn, identity.handler, &identity.key).await?;
            self.store.insert(&mut txn, &row).await?;
            settled(self.store.commit(txn).await)
        };
        self.persist(write).await;
        Outcome::Dead { reason: Reason::Committed }
    }

    /// Repeats a write until the database has answered it. `None` when the worker stops before that.
    pub(crate) async fn insist<T, F: Future<Output = Result<T, Fault>>>(&self, write: impl Fn() -> F) -> Option<T> {
        for tries in 0.. {
            match write().await {
                Ok(answer) => return Some(answer),
                Err(fault) => self.tell(&fault),
            }
            tokio::select! {
                () = self.pause(tries) => {}
                () = self.stop.cancelled() => return None,
            }
        }
        None
    }

    /// Repeats what must not be left undone until the database has answered it. Only the end of the process's patience with
    /// the worker ends it before that.
    pub(crate) async fn persist<T, F: Future<Output = Result<T, Fault>>>(&self, write: impl Fn() -> F) -> T {
        let mut tries = 0;
        loop {
            match write().await {
                Ok(answer) => return answer,
                Err(fault) => self.tell(&fault),
            }
            self.pause(tries).await;
            tries += 1;
        }
    }

    fn tell(&self, fault: &Fault) {
        self.outage.report(fault);
        tracing::debug!(error = crate::error::text(fault), "tried again");
    }

    async fn pause(&self, tries: usize) {
        if !self.outage.over_or_trial().await {
            tokio::time::sleep(crate::runtime::hold_wait(tries)).await;
        }
    }
}

/// The identity of a delivery without a key.
pub(crate) fn claimless(handler: HandlerId, delivery: &Delivery) -> Identity {
    Identity { handler, key: Key::empty(), fingerprint: Fingerprint::of_keyless(delivery) }
}

/// What the commit of a transaction of our own means, in which no handler ran.
pub(crate) fn settled(committed: Committed) -> Result<(), Fault> {
    match committed {
        Committed::Done => Ok(()),
        Committed::Retry(error) => Err(Fault::Retry(error)),
        Committed::Refused(error) => Err(Fault::Message(error)),
        Committed::Unknown(fault) => Err(fault),
        Committed::Swallowed | Committed::RolledBack | Committed::CommittedEarly | Committed::CommitRefused => {
            Err(Fault::Outage("the transaction was ended by somebody else".into()))
        }
    }
}
