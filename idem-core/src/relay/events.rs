//! What changes the state of a running relay.

use std::collections::BTreeSet;

use tokio::time::Instant;

use crate::outbox::Sink;
use crate::store::{LaneLeases, OutboxFound, PublishFailure, StoreError};
use crate::{Error, Store};

use super::broker;
use super::lanes::Permit;
use super::queue::Entry;
use super::state::Running;
use super::work::{Answer, Event, Failed};

impl<S: Store, K: Sink> Running<'_, S, K> {
    /// Applies the end of a statement or a call.
    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Published { permit, entry, began, answer } => self.published(&permit, entry, began, answer),
            Event::Read { began, found } => {
                self.busy.reading = false;
                let found = self.answered("read the outbox", found);
                self.read_ended(began, found);
            }
            Event::Deleted { ids, deleted } => {
                self.busy.deleting = false;
                let deleted = self.answered("delete published messages", deleted);
                self.delete_ended(ids, deleted);
            }
            Event::Recorded { failures, recorded } => {
                self.busy.recording = false;
                let recorded = self.answered("record refused messages", recorded);
                self.record_ended(failures, recorded.is_some());
            }
            Event::Renewed { began, leases } => {
                self.busy.leasing = false;
                match self.answered("renew its lanes", leases) {
                    Some(leases) => self.renewed(began, &leases),
                    None => self.next.renew = self.again(),
                }
            }
            Event::Taken { lanes } => {
                self.busy.leasing = false;
                for lane in self.answered("take lanes", lanes).unwrap_or_default() {
                    self.take_lane(lane);
                }
                self.metrics.lanes.set(self.lanes.held().count() as f64);
            }
            Event::Given { lanes, given } => {
                self.busy.leasing = false;
                if self.answered("give lanes back", given).is_some() {
                    self.lanes.given(&lanes);
                    self.drop_lanes(&lanes);
                }
            }
            Event::Counted { stats } => {
                self.busy.counting = false;
                if let Some(stats) = stats {
                    self.metrics.waiting.set(stats.waiting as f64);
                    self.metrics.dead.set(stats.dead as f64);
                    self.metrics.oldest.set(stats.oldest.unwrap_or_default().as_secs_f64());
                }
            }
        }
    }

    /// Logs a failure of the database, and reports it to the health.
    fn answered<T>(&self, what: &str, answer: Result<T, StoreError>) -> Option<T> {
        self.health.set_database(answer.is_ok());
        answer
            .map_err(|fault| {
                let error = crate::error::text(&fault);
                tracing::warn!(error, "the relay could not {what}; it tries again");
            })
            .ok()
    }

    fn published(&mut self, permit: &Permit, entry: Entry, began: Instant, answer: Answer) {
        self.publishing = self.publishing.saturating_sub(1);
        let (ours, now) = (self.lanes.published(permit), Instant::now());
        match &answer {
            Answer::Confirmed | Answer::Refused(_) => {
                if self.broker.confirmed(now) {
                    tracing::info!("the broker answers again");
                }
                self.health.set_broker(true);
            }
            Answer::Away(error) if self.broker.failed(began, now) => {
                tracing::warn!(error, "the broker is away: the relay tries again, and no message is charged");
                self.health.set_broker(false);
            }
            Answer::Panicked(text) => {
                let text = text.clone();
                self.defect.get_or_insert(Error::Panicked { task: "publishing", text });
            }
            Answer::Away(_) | Answer::Cancelled => {}
        }
        // Otherwise the message belongs to another relay, and is published again.
        if ours {
            self.settle(entry, answer, now);
        }
    }

    /// Applies the answer to a message whose lane is still held.
    fn settle(&mut self, mut entry: Entry, answer: Answer, now: Instant) {
        match answer {
            Answer::Confirmed => {
                self.health.progress();
                self.metrics.published.increment(1);
                if let Some(staged) = entry.staged {
                    self.metrics.lag.record(now.duration_since(staged));
                }
                self.confirmed.push((entry.lane, entry.id));
                self.queue.advance(&entry);
            }
            Answer::Refused(error) => self.refused(entry, error),
            Answer::Away(_) => {
                let wait = broker::wait(entry.tries);
                entry.tries = entry.tries.saturating_add(1);
                self.queue.delay(entry, now + wait);
            }
            Answer::Cancelled | Answer::Panicked(_) => self.queue.put_back(entry),
        }
    }

    /// Charges a message that the broker has refused. Its key waits until that is recorded, and until its next attempt.
    fn refused(&mut self, entry: Entry, error: String) {
        let attempt = entry.message.attempt();
        let next = self.settings.retry.after(attempt);
        let (id, to) = (entry.message.id(), entry.message.to());
        match next {
            Some(due) => {
                self.metrics.refused.increment(1);
                tracing::warn!(%id, to, attempt, ?due, error, "the broker has refused a message; it is tried again");
            }
            None => {
                self.metrics.given_up.increment(1);
                tracing::error!(%id, to, attempt, error, "a message of the outbox is a dead letter");
            }
        }
        let failure = PublishFailure { lane: entry.lane, id: entry.id, next, error };
        // Recorded before its time comes; one that is given up waits for its record only.
        self.queue.hold(&entry);
        self.failures.push(Failed { entry, failure });
    }

    fn record_ended(&mut self, failures: Vec<Failed>, recorded: bool) {
        let held: BTreeSet<u8> = self.lanes.held().collect();
        let failures = failures.into_iter().filter(|failed| held.contains(&failed.entry.lane));
        if !recorded {
            self.failures.extend(failures);
            self.next.record = self.again();
            return;
        }
        let now = Instant::now();
        for Failed { mut entry, failure } in failures {
            match failure.next {
                Some(due) => {
                    let message = (*entry.message).clone();
                    let attempt = message.attempt().saturating_add(1);
                    entry.message = message.with_attempt(attempt).into();
                    self.queue.delay(entry, now + due);
                }
                None => {
                    self.forget(vec![entry.id]);
                    // Later messages of its key were not read meanwhile.
                    self.queue.advance(&entry);
                    self.restart(entry.lane);
                }
            }
        }
    }

    fn read_ended(&mut self, began: Instant, found: Option<OutboxFound>) {
        let (restarted, deleted) = (std::mem::take(&mut self.restarted), std::mem::take(&mut self.deleted));
        let Some(mut found) = found else {
            self.next.read = self.again();
            return;
        };
        self.floors.found(&found, began);
        // Lanes may have been lost or marked meanwhile.
        let readable: BTreeSet<u8> = self.lanes.readable().into_iter().collect();
        // A read leaves out what was here when it began. Where messages were given up here meanwhile, because the one in
        // front of them had failed, what it has found is behind them, and would overtake them.
        found.rows.retain(|row| readable.contains(&row.lane) && !restarted.contains(&row.lane));
        let lanes: BTreeSet<u8> = found.rows.iter().map(|row| row.lane).collect();
        self.active = lanes.len();
        let new = self.queue.add(found.rows, Instant::now());
        self.queue.forget_ready(&deleted);
        for lane in restarted {
            self.floors.restart(lane);
        }
        if new > 0 {
            // There may be more.
            self.next.read = self.next.read.min(self.next.early);
        }
    }

    fn delete_ended(&mut self, ids: Vec<(u8, i64)>, deleted: Option<u64>) {
        let Some(deleted) = deleted else {
            let held: BTreeSet<u8> = self.lanes.held().collect();
            self.confirmed.extend(ids.into_iter().filter(|(lane, _)| held.contains(lane)));
            self.next.delete = self.again();
            return;
        };
        if deleted < ids.len() as u64 {
            // A lane may have been lost.
            self.next.renew = Instant::now();
        }
        self.forget(ids.into_iter().map(|(_, id)| id).collect());
    }

    /// Forgets messages that are deleted. A read that runs may still find them.
    fn forget(&mut self, ids: Vec<i64>) {
        if self.busy.reading {
            self.deleted.extend(&ids);
        }
        self.queue.forget(ids);
    }

    fn renewed(&mut self, began: Instant, leases: &LaneLeases) {
        let lost = self.lanes.renewed(began, self.settings.lease, &leases.held);
        if !lost.is_empty() {
            tracing::warn!(
                lanes = lost.len(),
                "another relay has taken lanes of this one, which did not renew them in time"
            );
            self.drop_lanes(&lost);
        }
        self.next.renew = began + self.settings.lease / 3;
        let relays = (leases.relays as usize).max(1);
        self.share = usize::from(self.store.outbox_lanes()).div_ceil(relays);
        let leaving = self.lanes.leave(self.share);
        // What is published of them is still settled.
        self.queue.drop_ready(&leaving);
        if self.lanes.held().count() < self.share {
            self.next.take = Some(Instant::now());
        }
        self.metrics.lanes.set(self.lanes.held().count() as f64);
    }

    fn take_lane(&mut self, lane: u8) {
        if !self.lanes.taken(&[lane]).is_empty() {
            self.restart(lane);
        }
    }
}
