//! The outcomes that workers report.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use idem::{Observed, Outcome};
use tokio::sync::watch;

use crate::Order;
use crate::wait::LONG;

/// The outcomes of deliveries and inbox runs, in the order in which workers reported them.
#[derive(Clone, Default)]
pub struct Journal {
    entries: Arc<Mutex<Vec<(String, Outcome)>>>,
    changed: watch::Sender<()>,
}

impl Journal {
    /// Records an outcome, for `.observe(..)`.
    pub fn note(&self, Observed { delivery, outcome, .. }: Observed<'_>) {
        let id = serde_json::from_slice::<Order>(delivery.payload()).map_or_else(|_| "?".to_owned(), |order| order.id);
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).push((id, outcome.clone()));
        self.changed.send_replace(());
    }

    /// All outcomes so far.
    pub fn all(&self) -> Vec<(String, Outcome)> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The outcomes of this message so far.
    pub fn of(&self, id: &str) -> Vec<Outcome> {
        self.all().into_iter().filter(|(of, _)| of == id).map(|(_, outcome)| outcome).collect()
    }

    /// How many outcomes match.
    pub fn count(&self, like: impl Fn(&Outcome) -> bool) -> usize {
        self.all().iter().filter(|(_, outcome)| like(outcome)).count()
    }

    /// How many messages are processed, if each was published once. If the reply to a commit was lost, the next try
    /// finds a duplicate, which counts as well.
    pub fn committed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Processed | Outcome::Duplicate))
    }

    /// Waits until `count` messages are processed.
    pub async fn processed(&self, count: usize) {
        self.until(&format!("{count} messages are processed"), |journal| {
            journal.count(|outcome| *outcome == Outcome::Processed) >= count
        })
        .await;
    }

    /// Waits until this message is processed or dead, and returns its outcome.
    pub async fn end_of(&self, id: &str) -> Outcome {
        let end = |journal: &Self| journal.of(id).into_iter().find(is_end);
        self.until(&format!("{id} comes to an end"), |journal| end(journal).is_some()).await;
        end(self).unwrap()
    }

    /// The number of each outcome.
    fn summary(&self) -> String {
        let mut counts = BTreeMap::<_, usize>::new();
        self.all().iter().for_each(|(_, outcome)| *counts.entry(outcome.as_str()).or_default() += 1);
        format!("{counts:?}")
    }

    /// Waits until the condition holds, as long as new outcomes arrive.
    pub async fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let mut changed = self.changed.subscribe();
        let (mut last, mut seen) = (Instant::now(), 0);
        while !holds(self) {
            let so_far = self.all().len();
            if so_far > seen {
                (last, seen) = (Instant::now(), so_far);
            }
            assert!(last.elapsed() < LONG, "waited too long: {what}; so far {}", self.summary());
            let _ = tokio::time::timeout(Duration::from_secs(1), changed.changed()).await;
        }
    }
}

fn is_end(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Processed | Outcome::Dead { .. })
}
