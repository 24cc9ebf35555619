//! Workers and relays, as each writes its own row every ten seconds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Error, Store};

use super::questions;
use super::shown::millis;
use super::{Operator, Rates, Time};

/// A worker or a relay that was alive within a day.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerRow {
    /// Random for each worker and relay.
    pub instance: Uuid,
    /// `worker` or `relay`.
    pub kind: String,
    /// The consumer, or the outbox.
    pub name: String,
    /// The name of its machine.
    pub host: String,
    /// The number of its process.
    pub pid: i64,
    /// The version of the program.
    pub version: String,
    /// When it started.
    pub started_at: Time,
    /// The time since it was last seen.
    #[serde(serialize_with = "millis::serialize", deserialize_with = "millis::since")]
    pub seen: Duration,
    /// Whether that was within 30 seconds. One whose process was killed is alive for so long.
    #[serde(default)]
    pub alive: bool,
    /// The last complete minute; of one that has none, the current one.
    #[serde(default)]
    pub minute: Rates,
    /// The last sixty minutes.
    #[serde(default)]
    pub hour: Rates,
    /// How many deliveries wait behind something that blocks them.
    #[serde(default)]
    pub blocked: u32,
    /// Why it takes nothing, if it does not.
    #[serde(default)]
    pub paused: Option<String>,
    #[serde(skip_serializing)]
    pub(super) report: Report,
}

/// What a worker says of itself. Parts that another version writes are left out.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    /// A number for each minute, the current one first.
    processed: Vec<u32>,
    duplicates: Vec<u32>,
    failed: Vec<u32>,
    blocked: u32,
    #[serde(with = "millis")]
    pub(super) blocked_for: Option<Duration>,
    paused: Option<String>,
    /// For how long the broker may deliver a message again, in seconds; the largest number: for ever.
    pub(super) window: Option<u64>,
}

/// How many minutes a worker counts.
pub(super) const MINUTES: usize = 60;

const MINUTE: Duration = Duration::from_secs(60);

/// For how long a worker counts as alive after it was seen.
const ALIVE: Duration = Duration::from_secs(30);

impl<S: Store> Operator<S> {
    /// Returns the workers and relays that were alive within a day, those that were seen last first: all relays, and the workers
    /// of the consumer. There are a thousand at most.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn workers(&self) -> Result<Vec<WorkerRow>, Error> {
        let mut workers: Vec<WorkerRow> = self.ask(&questions::workers(), &[]).await?;
        if let Some(consumer) = &self.consumer {
            workers.retain(|worker| worker.kind != "worker" || worker.name == *consumer);
        }
        workers.iter_mut().for_each(WorkerRow::read);
        Ok(workers)
    }
}

impl WorkerRow {
    /// Sets what the report says as of now.
    fn read(&mut self) {
        let is_older = self.started_at.0.elapsed().is_ok_and(|age| age >= MINUTE);
        let minutes: Vec<_> = self.minutes().map(|(age, counted)| (age, Rates::of(counted))).collect();
        for (age, counted) in minutes {
            self.hour.add(counted);
            if age == usize::from(is_older) {
                self.minute.add(counted);
            }
        }
        self.alive = self.seen <= ALIVE;
        (self.blocked, self.paused) = (self.report.blocked, self.report.paused.take());
    }

    /// The counts of each minute, with its age in minutes as of now.
    pub(super) fn minutes(&self) -> impl Iterator<Item = (usize, [u32; 3])> {
        let gone = usize::try_from(self.seen.as_secs() / 60).unwrap_or(usize::MAX);
        let Report { processed, duplicates, failed, .. } = &self.report;
        let at = |counts: &[u32], minute: usize| counts.get(minute).copied().unwrap_or_default();
        (0..MINUTES.saturating_sub(gone))
            .map(move |minute| (minute + gone, [processed, duplicates, failed].map(|counts| at(counts, minute))))
    }
}
