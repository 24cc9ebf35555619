//! A source whose acks never arrive, because the process ends before them.

use std::time::Duration;

use idem::{Acker, BoxError, Delivery, Horizon, Settled, Source, Terms};
use tokio::sync::watch;

use crate::within;

/// A source of whose deliveries none is acked: whoever comes to an ack stops there for ever.
pub struct Unacked<S> {
    source: S,
    asked: watch::Sender<usize>,
}

impl<S> Unacked<S> {
    /// This source, and how many acks were asked of it.
    pub fn new(source: S) -> (Self, Asked) {
        let asked = watch::Sender::new(0);
        (Self { source, asked: asked.clone() }, Asked(asked))
    }
}

/// How many acks were asked for.
pub struct Asked(watch::Sender<usize>);

impl Asked {
    /// Waits until there were so many.
    pub async fn reached(&self, acks: usize) {
        let mut asked = self.0.subscribe();
        within(&format!("{acks} acks are asked for"), asked.wait_for(|asked| *asked >= acks)).await.unwrap();
    }
}

impl<S: Source> Source for Unacked<S> {
    type Acker = UnackedAcker<S::Acker>;

    fn system(&self) -> &'static str {
        self.source.system()
    }

    fn name(&self) -> &str {
        self.source.name()
    }

    async fn open(&mut self, terms: Terms) -> Result<(), BoxError> {
        self.source.open(terms).await
    }

    fn horizon(&self) -> Horizon {
        self.source.horizon()
    }

    async fn next(&mut self) -> Result<(Delivery, Self::Acker), BoxError> {
        let (delivery, acker) = self.source.next().await?;
        Ok((delivery, UnackedAcker { acker, asked: self.asked.clone() }))
    }

    async fn drain(&mut self) {
        self.source.drain().await;
    }

    async fn close(&mut self) {
        self.source.close().await;
    }
}

/// The acker of such a delivery.
pub struct UnackedAcker<A> {
    acker: A,
    asked: watch::Sender<usize>,
}

impl<A: Acker> Acker for UnackedAcker<A> {
    async fn ack(self) -> Result<Settled, BoxError> {
        self.asked.send_modify(|asked| *asked += 1);
        std::future::pending().await
    }

    fn stored(&mut self) {
        self.acker.stored();
    }

    async fn release(self) -> Result<Settled, BoxError> {
        self.acker.release().await
    }

    fn lease(&self) -> Option<Duration> {
        self.acker.lease()
    }

    async fn extend(&mut self) -> Result<(), BoxError> {
        self.acker.extend().await
    }

    fn is_live(&self) -> bool {
        self.acker.is_live()
    }
}
