//! The messages in portions: the last ones are held back as long as a kill, a move or a fault is still to come.

use std::collections::VecDeque;

use anyhow::Result;
use idem_brokers::Broker;

/// The share of the messages that is held back: one of this many.
const SHARE: usize = 4;
/// How many portions that share has: more than there are kills, moves and faults.
const PORTIONS: usize = 15;

/// The messages that are not published yet.
#[derive(Debug)]
pub(crate) struct Supply {
    portions: VecDeque<Vec<Vec<u8>>>,
}

impl Supply {
    /// Publishes the greater part of these messages.
    pub(crate) async fn publish<B: Broker>(mut payloads: Vec<Vec<u8>>, broker: &B) -> Result<Self> {
        let mut held_back = payloads.split_off(payloads.len() - payloads.len() / SHARE);
        broker.publish(&payloads).await?;
        let size = held_back.len().div_ceil(PORTIONS).max(1);
        let mut portions = VecDeque::new();
        while !held_back.is_empty() {
            let rest = held_back.split_off(size.min(held_back.len()));
            portions.push_back(std::mem::replace(&mut held_back, rest));
        }
        Ok(Self { portions })
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
