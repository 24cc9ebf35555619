//! A source whose acks are counted, and from some moment on never arrive, because the process ends before them.

use std::time::Duration;

use idem::{Acker, BoxError, Delivery, Horizon, Lag, Settled, Source, Terms};
use tokio::sync::watch;

use crate::within;

/// A source whose acks can be kept from the broker: whoever comes to an ack then stops there for ever.
pub struct Unacked<S> {
    source: S,
    asks: watch::Sender<Asks>,
}

#[derive(Default)]
struct Asks {
    count: usize,
    kept: bool,
}

impl<S> Unacked<S> {
    /// This source, and how many acks were asked of it.
    pub fn new(source: S) -> (Self, Asked) {
        let asks = watch::Sender::default();
        (Self { source, asks: asks.clone() }, Asked(asks))
    }
}

/// The acks that were asked for.
pub struct Asked(watch::Sender<Asks>);

impl Asked {
    /// Keeps all acks from the broker from now on, and counts these anew.
    pub fn keep(&self) {
        self.0.send_replace(Asks { count: 0, kept: true });
    }

    /// Waits until there were so many.
    pub async fn reached(&self, acks: usize) {
        let mut asked = self.0.subscribe();
        within(&format!("{acks} acks are asked for"), asked.wait_for(|asks| asks.count >= acks)).await.unwrap();
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

    fn unsettled_limit(&self) -> Option<Duration> {
        self.source.unsettled_limit()
    }

    fn lag(&self) -> Option<Lag> {
        self.source.lag()
    }

    async fn next(&mut self) -> Result<(Delivery, Self::Acker), BoxError> {
        let (delivery, acker) = self.source.next().await?;
        Ok((delivery, UnackedAcker { acker, asks: self.asks.clone() }))
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
    asks: watch::Sender<Asks>,
}

impl<A: Acker> Acker for UnackedAcker<A> {
    async fn ack(self) -> Result<Settled, BoxError> {
        self.asks.send_modify(|asks| asks.count += 1);
        if self.asks.borrow().kept { std::future::pending().await } else { self.acker.ack().await }
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
