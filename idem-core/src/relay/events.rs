//! The events that change the state of a running relay.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::outbox::Sink;
use crate::store::{LaneLeases, OutboxFound, PublishFailure, RowRef, StoreError};
use crate::{Error, Store};

use super::entry::Entry;
use super::lanes::Permit;
use super::state::Running;
use super::work::{Answer, Event, Failed};

/// How often leases are renewed at least.
const RENEWED: Duration = Duration::from_secs(5);

impl<S: Store, K: Sink> Running<'_, S, K> {
    /// Applies the end of a statement or a call.
    pub(super) fn apply(&mut self, event: Event) {
        match event {
            Event::Published { permit, entry, began, answer } => self.published(permit, entry, began, answer),
            Event::Read { began, found } => {
                self.busy.reading = false;
                let found = self.answered("read the outbox", found);
                self.read_ended(began, found);
            }
            Event::Deleted { rows, deleted } => {
                self.busy.deleting = false;
                let deleted = self.answered("delete published messages", deleted);
                self.delete_ended(rows, deleted);
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
                match self.answered("give lanes back", given) {
                    Some(()) => {
                        self.lanes.given(&lanes);
                        self.drop_lanes(&lanes);
                    }
                    None => self.next.give = self.again(),
                }
            }
            Event::Counted { stats } => {
                self.busy.counting = false;
                match stats {
                    Ok(stats) => self.metrics.outbox.set(&stats),
                    // The gauges keep their values. The health does not depend on them.
                    Err(error) => tracing::warn!(error, "the messages of the outbox could not be counted"),
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

    fn published(&mut self, permit: Permit, entry: Entry, began: Instant, answer: Answer) {
        self.places.leave(entry.place);
        let (ours, now) = (self.lanes.published(&permit), Instant::now());
        let late = self.heard(&entry, began, now, &answer);
        match &answer {
            Answer::Confirmed | Answer::Refused(_) => {
                self.panics.answered();
                if self.broker.confirmed(now) {
                    tracing::info!("the broker answers again");
                }
                self.health.set_broker(true);
            }
            Answer::Away(error) | Answer::Late(error)
                if self.broker.failed(began, now, matches!(answer, Answer::Late(_))) =>
            {
                tracing::warn!(error, "the broker is away: the relay tries again, and no message is charged");
                self.health.set_broker(false);
            }
            Answer::Panicked(text) if self.panics.panicked(entry.id) => {
                let text = text.clone();
                self.defect.get_or_insert(Error::Panicked { task: "publishing", text });
            }
            Answer::Panicked(_) | Answer::Away(_) | Answer::Late(_) | Answer::Cancelled => {}
        }
        // Otherwise the message belongs to another relay, and is published again.
        if ours {
            self.settle(permit, entry, answer, now, late);
        }
    }

    /// Applies the answer to a message whose lane is still held; `late` says that there was none in time.
    fn settle(&mut self, permit: Permit, entry: Entry, answer: Answer, now: Instant, late: bool) {
        match answer {
            Answer::Confirmed => {
                self.health.progress();
                self.metrics.published.increment(1);
                if let Some(staged) = entry.staged {
                    self.metrics.lag.record(now.duration_since(staged));
                }
                self.confirmed.push(entry.row());
                self.queue.advance(&entry);
            }
            Answer::Refused(error) => self.refused(permit, entry, error),
            Answer::Panicked(text) if self.defect.is_none() => {
                self.refused(permit, entry, format!("the sink panicked: {text}"));
            }
            _ if self.lanes.is_leaving(entry.lane) => self.queue.leave(&entry),
            Answer::Away(_) | Answer::Late(_) if late && self.queue.sets_aside(&entry) => {
                // It may never get an answer, so those go first that were not tried.
                self.queue.set_aside(Entry { tries: entry.tries.saturating_add(1), ..entry }, now);
            }
            Answer::Away(_) | Answer::Late(_) => {
                self.queue.delay_unanswered(&entry, now + self.broker.delay(entry.tries));
            }
            Answer::Cancelled | Answer::Panicked(_) => self.queue.put_back(entry),
        }
    }

    /// Charges a message that the broker has refused. Its key waits until that is recorded, and until its next attempt.
    fn refused(&mut self, permit: Permit, entry: Entry, error: String) {
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
        let failure = PublishFailure { row: entry.row(), attempts: attempt, next, error };
        // Recorded before its time comes; one that is given up waits for its record only.
        self.queue.hold(&entry);
        self.failures.push(Failed { permit, entry, failure });
    }

    fn record_ended(&mut self, failures: Vec<Failed>, recorded: bool) {
        // A lane may have been lost, and leased again, and the message read again.
        let failures = failures.into_iter().filter(|failed| self.lanes.holds(&failed.permit));
        if !recorded {
            self.failures.extend(failures.collect::<Vec<_>>());
            self.next.record = self.again();
            return;
        }
        let now = Instant::now();
        for Failed { entry, failure, .. } in failures.collect::<Vec<_>>() {
            match failure.next {
                _ if self.lanes.is_leaving(entry.lane) => self.queue.leave(&entry),
                Some(due) => self.queue.delay(&entry, now, due),
                None => {
                    self.forget([entry.id]);
                    self.queue.give_up(&entry);
                }
            }
        }
    }

    fn read_ended(&mut self, began: Instant, found: Option<OutboxFound>) {
        let (restarted, deleted) = (std::mem::take(&mut self.restarted), std::mem::take(&mut self.deleted));
        let Some(mut found) = found else {
            self.floors.failed(began, Instant::now());
            self.next.read = self.again();
            return;
        };
        // Lanes may have been lost or marked meanwhile, and what is here of those that were taken again was not here then.
        let readable: BTreeSet<u8> = self.lanes.readable().into_iter().collect();
        let dropped = (0..=u8::MAX).filter(|lane| !readable.contains(lane) || restarted.contains(lane)).collect();
        let Some(covered) = self.floors.found(&mut found, began, &dropped) else {
            self.next.read = self.next.read.min(self.next.early);
            return;
        };
        let (now, lanes) = (Instant::now(), found.rows.iter().map(|row| row.lane).collect::<BTreeSet<u8>>());
        self.active = lanes.len();
        found.rows.retain(|row| !deleted.contains(&row.id));
        self.queue.covered(&covered);
        let new = self.queue.add(found.rows, now);
        self.pause.end(began, now, &lanes);
        let is_cut = covered.values().any(|covered| covered.to.is_some());
        if new > 0 || is_cut || self.queue.reads_on(&covered) {
            // There may be more.
            self.next.read = self.next.read.min(self.next.early);
        }
    }

    fn delete_ended(&mut self, rows: Vec<RowRef>, deleted: Option<u64>) {
        let Some(deleted) = deleted else {
            let held: BTreeSet<u8> = self.lanes.held().collect();
            self.confirmed.extend(rows.into_iter().filter(|row| held.contains(&row.lane)));
            self.next.delete = self.again();
            return;
        };
        if deleted < rows.len() as u64 {
            // A lane may have been lost.
            self.next.renew = Instant::now();
        }
        self.forget(rows.into_iter().map(|row| row.id));
    }

    /// Forgets messages that are deleted. A read that runs may still find them.
    fn forget(&mut self, ids: impl IntoIterator<Item = i64>) {
        for id in ids {
            if self.busy.reading {
                self.deleted.insert(id);
            }
            self.queue.forget([id]);
        }
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
        // Also if leases are long, it is told soon how many relays there are.
        self.next.renew = began + RENEWED.min(self.settings.lease / 3);
        let relays = (leases.relays as usize).max(1);
        self.share = usize::from(self.store.outbox_lanes()).div_ceil(relays);
        let leaving = self.lanes.leave(self.share);
        // Those of their messages that are being published are still settled.
        self.queue.drop_ready(&leaving);
        self.metrics.lanes.set(self.lanes.held().count() as f64);
    }

    fn take_lane(&mut self, lane: u8) {
        if !self.lanes.taken(&[lane]).is_empty() {
            self.restart(lane);
        }
    }
}
