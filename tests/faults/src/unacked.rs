//! Acks that are counted, and withheld from some moment on, because the process ends before them.

use idem::adapter::{Acker, Settled};
use idem::{BoxError, Delivery};
use idem_test::Tapped;
use idem_test::tap::{AckTap, Tap};
use tokio::sync::watch;

use crate::within;

/// Withholds acks from the broker once told to: an ack then waits forever.
#[derive(Clone)]
pub struct Unacked(watch::Sender<Asks>);

#[derive(Default)]
struct Asks {
    count: usize,
    kept: bool,
}

impl Unacked {
    /// Wraps this source, and returns the count of its acks.
    pub fn new<S>(source: S) -> (Tapped<S, Self>, Asked) {
        let asks = watch::Sender::default();
        (Tapped::new(source, Self(asks.clone())), Asked(asks))
    }
}

/// The acks that the worker requested.
pub struct Asked(watch::Sender<Asks>);

impl Asked {
    /// Withholds all acks from the broker from now on, and restarts the count.
    pub fn keep(&self) {
        self.0.send_replace(Asks { count: 0, kept: true });
    }

    /// Waits until there are `acks` acks.
    pub async fn reached(&self, acks: usize) {
        let mut asked = self.0.subscribe();
        within(&format!("{acks} acks are asked for"), asked.wait_for(|asks| asks.count >= acks)).await.unwrap();
    }
}

impl Tap for Unacked {
    type Ack = Self;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Self) {
        (delivery, self.clone())
    }
}

impl AckTap for Unacked {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        self.0.send_modify(|asks| asks.count += 1);
        let kept = self.0.borrow().kept;
        if kept { std::future::pending().await } else { acker.ack().await }
    }
}
