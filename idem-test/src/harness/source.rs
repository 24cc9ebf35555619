//! A source whose acks stop at a point.

use std::time::Duration;

use idem_core::{Acker, BoxError, Delivery, Horizon, Lag, Settled, Source, Terms};

use super::Crash;
use super::crash::Fate;

/// A source whose process may crash: its ackers stop for ever behind the ack, where that is the chosen point.
#[derive(Debug)]
pub struct CrashingSource<S> {
    within: S,
    fate: Fate,
}

impl<S> CrashingSource<S> {
    pub(super) fn new(within: S, fate: Fate) -> Self {
        Self { within, fate }
    }
}

/// An acker of [`CrashingSource`].
#[derive(Debug)]
pub struct CrashingAcker<A> {
    within: A,
    fate: Fate,
}

impl<S: Source> Source for CrashingSource<S> {
    type Acker = CrashingAcker<S::Acker>;

    fn system(&self) -> &'static str {
        self.within.system()
    }

    fn name(&self) -> &str {
        self.within.name()
    }

    async fn open(&mut self, terms: Terms) -> Result<(), BoxError> {
        self.within.open(terms).await
    }

    fn horizon(&self) -> Horizon {
        self.within.horizon()
    }

    fn has_positions(&self) -> bool {
        self.within.has_positions()
    }

    fn has_partition_keys(&self) -> bool {
        self.within.has_partition_keys()
    }

    fn has_subjects(&self) -> bool {
        self.within.has_subjects()
    }

    fn unsettled_limit(&self) -> Option<Duration> {
        self.within.unsettled_limit()
    }

    fn lag(&self) -> Option<Lag> {
        self.within.lag()
    }

    async fn next(&mut self) -> Result<(Delivery, Self::Acker), BoxError> {
        let (delivery, within) = self.within.next().await?;
        Ok((delivery, CrashingAcker { within, fate: self.fate.clone() }))
    }

    async fn drain(&mut self) {
        self.within.drain().await;
    }

    async fn close(&mut self) {
        self.within.close().await;
    }
}

impl<A: Acker> Acker for CrashingAcker<A> {
    async fn ack(self) -> Result<Settled, BoxError> {
        let settled = self.within.ack().await;
        self.fate.reach(Crash::AfterAck).await;
        settled
    }

    fn stored(&mut self) {
        self.within.stored();
    }

    async fn release(self) -> Result<Settled, BoxError> {
        self.within.release().await
    }

    fn lease(&self) -> Option<Duration> {
        self.within.lease()
    }

    async fn extend(&mut self) -> Result<(), BoxError> {
        self.within.extend().await
    }

    fn is_live(&self) -> bool {
        self.within.is_live()
    }
}
