//! The gauges of parked deliveries, and the blocked ones in the table `workers`.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::runtime::Wait;
use crate::telemetry::ConsumerMetrics;
use crate::worker::{Member, Waiting};

/// Counts the parked deliveries, and those of them that another delivery of their key blocks. If that one fails again and
/// again, the oldest of them shows for how long.
pub(super) struct Blocked<'a> {
    metrics: &'a ConsumerMetrics,
    member: &'a Member,
    since: BTreeSet<(Instant, u64)>,
    entered: u64,
}

/// When a blocked delivery was parked; `None` if nothing blocks it.
pub(super) type Place = Option<(Instant, u64)>;

impl<'a> Blocked<'a> {
    pub(super) fn new(metrics: &'a ConsumerMetrics, member: &'a Member) -> Self {
        Self { metrics, member, since: BTreeSet::new(), entered: 0 }
    }

    /// Adds a delivery.
    pub(super) fn enter(&mut self, until: &Wait) -> Place {
        self.metrics.parked.increment(1);
        let place = matches!(until, Wait::Key).then(|| {
            self.metrics.blocked.increment(1);
            self.entered += 1;
            let place = (Instant::now(), self.entered);
            self.since.insert(place);
            place
        });
        self.report();
        place
    }

    /// Removes it.
    pub(super) fn leave(&mut self, place: Place) {
        self.metrics.parked.decrement(1);
        if let Some(place) = place {
            self.metrics.blocked.decrement(1);
            self.since.remove(&place);
            if self.since.is_empty() {
                self.show();
            }
        }
        self.report();
    }

    fn report(&self) {
        let blocked = u32::try_from(self.since.len()).unwrap_or(u32::MAX);
        self.member.report(Waiting { blocked, since: self.since.first().map(|(since, _)| *since) });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Shows for how long the oldest one has been blocked.
    pub(super) fn show(&self) {
        let oldest = self.since.first().map(|(since, _)| since.elapsed());
        self.metrics.blocked_oldest.set(oldest.unwrap_or_default().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use crate::store::Value;
    use crate::worker::Roster;
    use crate::{Health, ReplayWindow};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_behind_another_one_are_counted_and_the_oldest_shows_for_how_long() {
        let recorder = DebuggingRecorder::new();
        let metrics = metrics::with_local_recorder(&recorder, || ConsumerMetrics::new("billing"));
        let shown = || {
            let gauges = recorder.snapshotter().snapshot().into_vec().into_iter().filter_map(|(key, _, _, value)| {
                let DebugValue::Gauge(value) = value else { return None };
                Some((key.key().name().to_owned(), value.into_inner()))
            });
            let gauges: BTreeMap<_, _> = gauges.collect();
            ["idem_parked", "idem_blocked", "idem_blocked_oldest_seconds"].map(|name| gauges[name])
        };
        let roster = Roster::default();
        let member = roster.join(("worker", "billing"), "1", ReplayWindow::Unknown, &Health::new());
        let mut blocked = Blocked::new(&metrics, &member);
        let refused = blocked.enter(&Wait::After(Duration::ZERO));
        assert!(refused.is_none() && blocked.is_empty());
        let first = blocked.enter(&Wait::Key);
        tokio::time::advance(Duration::from_secs(5)).await;
        let second = blocked.enter(&Wait::Key);
        tokio::time::advance(Duration::from_secs(1)).await;
        blocked.show();
        assert_eq!(shown(), [3.0, 2.0, 6.0]);
        let report = || match roster.due() {
            Some(Value::Text(Some(rows))) => rows,
            other => panic!("{other:?}"),
        };
        let rows = report();
        assert!(rows.contains(r#""blocked":2,"blocked_for":6000,"#), "{rows}");
        blocked.leave(first);
        blocked.show();
        // Each look at the recorder has set its gauges to zero.
        assert_eq!(shown(), [-1.0, -1.0, 1.0]);
        blocked.leave(second);
        blocked.leave(refused);
        assert_eq!(shown(), [-2.0, -1.0, 0.0], "nothing is shown of what has left");
        tokio::time::advance(Duration::from_secs(10)).await;
        let rows = report();
        assert!(rows.contains(r#""blocked":0,"blocked_for":null,"#), "{rows}");
    }
}
