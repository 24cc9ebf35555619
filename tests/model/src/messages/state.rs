//! The state of the world: the database, the broker, two workers, and what has happened so far.

use super::database::{Claim, Holder, Reason, Row};
use super::facts::{Facts, Left};
use super::slot::{ALL, Slot, slots};
use super::task::{Lock, Stage, Task, Work};

/// How many messages a scenario has at most.
pub(super) const MESSAGES: usize = 3;
/// How many deliveries of them it has at most: a copy is one more delivery of its message.
pub(super) const DELIVERIES: usize = 5;

/// Everything that can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The claim of each key. Only what is committed: a transaction that is open is in `tasks`.
    pub(super) claims: [Option<Claim>; MESSAGES],
    /// The inbox row of each message, if it has one.
    pub(super) rows: [Option<Row>; MESSAGES],
    /// The highest date of a claim that prune has deleted.
    pub(super) pruned_through: Option<u8>,
    /// A date that prune has yet to write. Only if a defect writes it apart from the delete.
    pub(super) unwritten: Option<u8>,
    /// Where each delivery is.
    pub(super) deliveries: [Place; DELIVERIES],
    /// A broker that is a log, such as Kafka.
    pub(super) log: Log,
    /// The work of each slot.
    pub(super) tasks: [Option<Task>; ALL],
    /// The history of each message.
    pub(super) facts: [Facts; MESSAGES],
    /// The failures that may still come.
    pub(super) left: Left,
    /// The clock of the database.
    pub(super) clock: u8,
    /// The database that is away.
    pub(super) away: Option<u8>,
}

/// Where a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Place {
    /// At the broker; whether that marks it as redelivered.
    Queued(bool),
    /// Unsettled, at this slot.
    Held(Slot),
    /// The broker has its ack.
    Settled,
}

/// The state of a broker that is a log: it has no mark of redelivery, so the owner of its partition marks deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Log {
    /// The worker that the partition is assigned to.
    pub(super) owner: u8,
    /// How many deliveries the owner has received, counted from the first one of all.
    pub(super) received: u8,
    /// Deliveries numbered below this are marked when they are received.
    pub(super) to_mark: u8,
    /// The deliveries that were marked, and are neither stored nor settled since.
    pub(super) marked: [bool; DELIVERIES],
    /// How many deliveries the broker knows to be finished.
    pub(super) committed: u8,
}

impl State {
    /// The slots that work on something, with their tasks.
    pub(super) fn busy(&self) -> impl Iterator<Item = (Slot, Task)> {
        (0..).zip(self.tasks).filter_map(|(slot, task)| Some((slot, task?)))
    }

    /// The first slot of a worker that has no work. Slots are equal, so the others need not be tried.
    pub(super) fn idle(&self, worker: usize) -> Option<Slot> {
        slots(worker).find(|slot| self.tasks[*slot].is_none()).and_then(|slot| Slot::try_from(slot).ok())
    }

    /// Sets how far the task of a slot is. A delivery holds its lock from its begin until its outcome is written.
    pub(super) fn advance(&mut self, slot: Slot, stage: Stage) {
        let Some(task) = &mut self.tasks[usize::from(slot)] else { return };
        task.stage = stage;
        match stage {
            Stage::Received { .. } | Stage::WaitsForRow | Stage::Settling => task.lock = Lock::Free,
            Stage::Running => task.lock = Lock::Held,
            _ => {}
        }
    }

    /// Ends the task of a slot.
    pub(super) fn end(&mut self, slot: Slot) {
        self.tasks[usize::from(slot)] = None;
    }

    /// The slot has stored its delivery, which had no claim. One that was received again since is not its own any more.
    pub(super) fn stored(&mut self, slot: Slot) {
        let Some(Task { work: Work::Delivery(delivery), .. }) = self.tasks[usize::from(slot)] else { return };
        if self.deliveries[usize::from(delivery)] == Place::Held(slot) {
            self.log.marked[usize::from(delivery)] = false;
        }
    }

    /// Inserts a row, unless the message has one.
    pub(super) fn insert(&mut self, message: u8, attempts: u8, dead: Option<Reason>) {
        self.rows[usize::from(message)].get_or_insert(Row::new(attempts, dead));
        self.facts[usize::from(message)].kept = true;
    }

    /// Changes the row of a message, if it has one.
    pub(super) fn change(&mut self, message: u8, change: impl FnOnce(Row) -> Row) {
        let row = &mut self.rows[usize::from(message)];
        *row = row.map(change);
    }

    /// Whether the row of the message has the token of this slot.
    pub(super) fn has_token(&self, message: u8, slot: Slot) -> bool {
        let holder = self.rows[usize::from(message)].map(|row| row.holder);
        matches!(holder, Some(Holder::Leased(holder) | Holder::Expired(holder)) if holder == slot)
    }

    /// Whether an open transaction has deleted the row of the message, and so locks it.
    pub(super) fn is_locked(&self, message: u8) -> bool {
        self.busy()
            .any(|(_, task)| task.stage == Stage::Running && matches!(task.work, Work::Row(of, _) if of == message))
    }
}

/// A state of these worlds, and the steps that it permits.
pub(super) type Steps<'a> = crate::step::Steps<'a, super::scenario::Scenario, State>;
