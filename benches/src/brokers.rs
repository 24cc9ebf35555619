//! From a real broker to the database: the messages are published, then a worker empties the queue.

use anyhow::{Result, bail};
use bytes::Bytes;
use idem::Postgres;

use crate::case::{Broker, Case, Side};

/// Those that have an address in the environment.
pub(crate) struct Brokers;

impl Brokers {
    pub(crate) async fn look() -> Self {
        Self
    }

    pub(crate) fn has(&self, case: &Case) -> bool {
        !matches!(case.side, Side::Broker(_))
    }

    pub(crate) fn missing(&self) -> Vec<String> {
        Vec::new()
    }

    pub(crate) async fn run(&self, broker: Broker, _: &Postgres, _: usize, _: Vec<Bytes>) -> Result<f64> {
        bail!("{broker:?} is not here")
    }
}
