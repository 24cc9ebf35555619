//! The messages in portions: the last ones are held back as long as a kill, a move or a fault is still to come.

use std::collections::VecDeque;

use anyhow::Result;
use idem_brokers::Broker;

/// The share of the messages that is held back: one of this many.
const SHARE: usize = 4;

/// The messages that are not published yet.
#[derive(Debug)]
pub(crate) struct Supply {
    portions: VecDeque<Vec<Vec<u8>>>,
}

impl Supply {
    /// Publishes the greater part of these messages. The rest has this many portions: more than there are kills, moves
    /// and faults.
    pub(crate) async fn publish<B: Broker>(mut payloads: Vec<Vec<u8>>, portions: usize, broker: &B) -> Result<Self> {
        let held_back = payloads.split_off(payloads.len() - payloads.len() / SHARE);
        broker.publish(&payloads).await?;
        let size = held_back.len().div_ceil(portions).max(1);
        Ok(Self { portions: held_back.chunks(size).map(<[_]>::to_vec).collect() })
    }

    /// Returns whether all messages are published.
    pub(crate) fn is_over(&self) -> bool {
        self.portions.is_empty()
    }

    /// Publishes one portion, because workers must have work in hand.
    pub(crate) async fn some<B: Broker>(&mut self, broker: &B) -> Result<()> {
        match self.portions.pop_front() {
            Some(portion) => broker.publish(&portion).await,
            None => Ok(()),
        }
    }

    /// Publishes everything else.
    pub(crate) async fn rest<B: Broker>(&mut self, broker: &B) -> Result<()> {
        let rest: Vec<_> = self.portions.drain(..).flatten().collect();
        if rest.is_empty() {
            return Ok(());
        }
        broker.publish(&rest).await
    }
}
