//! The state of the world: the database, the broker, two workers, and what has happened so far.

/// How many messages a scenario has at most.
pub(super) const MESSAGES: usize = 3;
/// How many deliveries of them it has at most: a copy is one more delivery of its message.
pub(super) const DELIVERIES: usize = 5;
/// Two workers, each a process of its own.
pub(super) const WORKERS: usize = 2;
/// How many handlers a worker runs at once.
pub(super) const SLOTS: usize = 2;
/// The slots of all workers.
pub(super) const ALL: usize = WORKERS * SLOTS;

/// The number of a slot. Slots 0 and 1 are those of worker A, 2 and 3 those of worker B.
pub(super) type Slot = u8;

/// The worker of a slot.
pub(super) fn worker(slot: Slot) -> usize {
    usize::from(slot) / SLOTS
}

/// The slots of a worker.
pub(super) fn slots(worker: usize) -> std::ops::Range<usize> {
    worker * SLOTS..(worker + 1) * SLOTS
}

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
    /// What has happened to each message.
    pub(super) facts: [Facts; MESSAGES],
    /// The failures that may still come.
    pub(super) left: Left,
    /// The clock of the database.
    pub(super) clock: u8,
}

/// The claim of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    /// The message that holds it: its fingerprint.
    pub(super) message: u8,
    /// When the message was processed. None: its inbox row exists.
    pub(super) date: Option<u8>,
}

/// An inbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Row {
    /// Why it is dead; None while it is scheduled.
    pub(super) dead: Option<Reason>,
    /// Who has it.
    pub(super) holder: Holder,
    /// Runs since the last result.
    pub(super) starts: u8,
    /// Runs since the last result that lost their connection.
    pub(super) breaks: u8,
    /// Failed runs.
    pub(super) attempts: u8,
}

/// The token and the lease of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// It has no token.
    Nobody,
    /// It has the token of this slot, and the lease goes on.
    Leased(Slot),
    /// It has the token of this slot, whose lease is over: a worker that was paused.
    Expired(Slot),
    /// It has a token of a process that is gone. The lease ends by itself, so that time is not a step.
    Gone,
}

/// Why a row is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reason {
    /// Its attempts ended, or it failed for good.
    Failed,
    /// Processes ended while it ran.
    Crashed,
    /// It lost its connection too often.
    Broke,
    /// Another message holds the claim of its key. Such a row owns no claim.
    Conflict,
    /// It may have been processed under a claim that was pruned.
    TooOld,
    /// Its handler ran COMMIT: half of its effects may stand.
    Committed,
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

/// The state of a broker that is a log: it has no mark of redelivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Log {
    /// The worker that the partition is assigned to.
    pub(super) owner: u8,
    /// How many deliveries without a claim the owner still stores before it runs one directly.
    pub(super) to_store: u8,
    /// How many deliveries the broker knows to be finished.
    pub(super) committed: u8,
}

/// The work of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Task {
    /// What it works on.
    pub(super) work: Work,
    /// How far it is.
    pub(super) stage: Stage,
}

/// A delivery or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Work {
    /// The number of the delivery.
    Delivery(u8),
    /// The message of the row, and how it is kept apart from other work.
    Row(u8, Isolation),
}

/// What must not run beside a row, in its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Isolation {
    /// Nothing: an ordinary row.
    Nothing,
    /// Other inbox rows.
    Rows,
    /// Anything.
    Everything,
}

/// How far a task is. Between two stages, everything else may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stage {
    /// A delivery that has arrived. `stores`: it is stored before it runs. `pruned`: the pruning cutoff, where a defect
    /// reads it before the claim.
    Received { stores: bool, pruned: Option<u8> },
    /// A row that was taken, or whose start was counted: it begins next.
    Taken,
    /// A suspect that waits until its process is quiet, and had these starts when it was reserved.
    Reserved { known: u8 },
    /// The same, after the statement that counts its start has had no answer.
    Counting { known: u8 },
    /// The transaction is open and holds the claim, and the handler runs.
    Running,
    /// The handler failed, and its transaction was rolled back. The failure is not written yet.
    Failed,
    /// The run of a row lost its connection. That is not written yet.
    Broke,
    /// The run was cut off, and the fate of its transaction is known: the handler committed it. That is not written yet.
    CommittedEarly,
    /// With an order: the message has a row, and its delivery is settled when that is processed or dead.
    WaitsForRow,
    /// The database has taken the message over; the ack is next. Of a row, only where a defect removes it late.
    Settling,
}

/// What has happened to a message. No rule reads this, except that a handler may fail only once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Facts {
    /// How often its effect was committed.
    pub(super) effects: u8,
    /// Whether its effect or a row of it was ever committed.
    pub(super) kept: bool,
    /// Whether an operator discarded it.
    pub(super) discarded: bool,
    /// How many processes its handler has ended.
    pub(super) deaths: u8,
    /// How many connections its handler has broken.
    pub(super) breaks: u8,
    /// How often its handler failed.
    pub(super) failures: u8,
    /// Runs of its row that have begun, and have neither ended with a result nor been given back.
    pub(super) open: u8,
}

/// How many failures of each kind may still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Left {
    /// A process is killed from outside.
    pub(super) kills: u8,
    /// A lease ends although its worker lives.
    pub(super) pauses: u8,
    /// A statement has no answer: it may or may not have been done.
    pub(super) losses: u8,
    /// The broker takes a delivery back, or moves its partition.
    pub(super) returns: u8,
    /// Prune deletes a claim.
    pub(super) prunes: u8,
    /// An operator replays or discards.
    pub(super) orders: u8,
    /// The clock advances.
    pub(super) ticks: u8,
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

    /// Sets how far the task of a slot is.
    pub(super) fn advance(&mut self, slot: Slot, stage: Stage) {
        if let Some(task) = &mut self.tasks[usize::from(slot)] {
            task.stage = stage;
        }
    }

    /// Ends the task of a slot.
    pub(super) fn end(&mut self, slot: Slot) {
        self.tasks[usize::from(slot)] = None;
    }

    /// Inserts a row, unless the message has one.
    pub(super) fn insert(&mut self, message: u8, attempts: u8, dead: Option<Reason>) {
        let new = Row { dead, holder: Holder::Nobody, starts: 0, breaks: 0, attempts };
        self.rows[usize::from(message)].get_or_insert(new);
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

impl Task {
    /// What it keeps out of its process. A suspect that waits keeps out nothing yet.
    pub(super) fn isolates(self) -> Isolation {
        match (self.work, self.stage) {
            (_, Stage::Reserved { .. } | Stage::Counting { .. }) | (Work::Delivery(_), _) => Isolation::Nothing,
            (Work::Row(_, isolation), _) => isolation,
        }
    }
}

impl Log {
    /// The slot has stored a delivery that had no claim.
    pub(super) fn stored(&mut self, slot: Slot) {
        if worker(slot) == usize::from(self.owner) {
            self.to_store = self.to_store.saturating_sub(1);
        }
    }
}
