//! The state of the world: the row of one message whose handler calls a provider, two workers, and the provider.

/// How many workers there are.
pub(super) const WORKERS: usize = 2;
/// How many keys a message uses at most. Another one follows from a decision of an operator, of which no world has so many, or from
/// a broken rule.
pub(super) const KEYS: usize = 10;

/// Everything that can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    /// The inbox row. None: it is completed.
    pub(super) row: Option<Row>,
    /// The work of each worker.
    pub(super) workers: [Stage; WORKERS],
    /// The request of each worker that is on its way, by its key. It outlives its worker, but not the timeout of a call.
    pub(super) flying: [Option<u8>; WORKERS],
    /// The keys that the row has had.
    pub(super) keys: [Key; KEYS],
    /// How often the provider has charged for the message.
    pub(super) charges: u8,
    /// How often the handler that completes has committed.
    pub(super) completed: u8,
    /// The row in the backup, if one was made.
    pub(super) saved: Option<Row>,
    /// Whether a call was sent although the row had its answer.
    pub(super) recalled: bool,
    /// The failures that may still come.
    pub(super) left: Left,
}

/// The inbox row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Row {
    /// Who has it.
    pub(super) holder: Holder,
    /// The number of its key.
    pub(super) key: u8,
    /// Whether the time of the first call is set.
    pub(super) called: bool,
    /// Whether the answer is kept.
    pub(super) answer: bool,
    /// Why it is dead.
    pub(super) dead: Option<Death>,
}

impl Row {
    /// A row that was just stored, with this key.
    pub(super) fn stored(key: u8) -> Self {
        Self { holder: Holder::Nobody, key, called: false, answer: false, dead: None }
    }
}

/// Why the row is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Death {
    /// Nobody knows what became of its call.
    Unresolved,
    /// Its attempts have ended. It can be replayed.
    Exhausted,
}

/// The token and the lease of the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Holder {
    /// It is due.
    Nobody,
    /// This worker has it, and the lease goes on.
    Leased(u8),
    /// This worker has it, and was paused for longer than its lease.
    Expired(u8),
    /// It is due, because an answer came late and was kept. This worker has lost it by that, and its lease goes on by its own
    /// clock.
    Bypassed(u8),
    /// The lease of this worker is left to end: it is gone, or its call is in doubt.
    Ending(u8),
}

/// A key, and what the provider knows of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Key {
    /// Its age, by the time of the first call.
    pub(super) age: Age,
    /// Whether the provider has charged under it.
    pub(super) charged: bool,
    /// Whether the provider has forgotten it: a further request is a new one to it.
    pub(super) forgotten: bool,
}

/// The age of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum Age {
    /// It was not used.
    #[default]
    Unused,
    /// The provider certainly knows it, and will while a call takes.
    Young,
    /// Its life is over, or almost: the provider may forget it before a call arrives.
    Old,
}

/// The work of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Nothing.
    Idle,
    /// It has fetched the row. Whether no call had begun before under its key.
    Fetched { first: bool },
    /// It calls under this key, and has not sent its request.
    Sending { first: bool, key: u8 },
    /// It waits for the answer to a call.
    Calling { first: bool },
    /// It has the answer to a call under this key, and completes next.
    Answered { key: u8 },
    /// It was told by the provider that no call has had an effect, and calls again next.
    NotThere,
    /// Its call certainly had no effect.
    NotDone { first: bool },
    /// Its call may have had an effect.
    Doubt,
}

/// How many failures of each kind may still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct Left {
    /// A process ends.
    pub(super) kills: u8,
    /// A worker is paused for longer than its lease.
    pub(super) pauses: u8,
    /// An answer is lost.
    pub(super) losses: u8,
    /// The provider answers that it is busy.
    pub(super) busy: u8,
    /// The handler that completes fails.
    pub(super) failures: u8,
    /// The attempts of a call end, and an operator replays the row.
    pub(super) replays: u8,
    /// An operator looks at the provider, and resolves a dead row.
    pub(super) resolutions: u8,
    /// The provider cannot tell what became of a call.
    pub(super) unknown: u8,
    /// A backup is restored.
    pub(super) restores: u8,
    /// A backup from before the message is restored, and the stream is rewound, so that the message comes again.
    pub(super) rewinds: u8,
    /// Another message with the same key and content comes once the claim of this one was pruned.
    pub(super) others: u8,
}

impl State {
    /// Whether the row has the token of this worker.
    pub(super) fn has_token(&self, worker: usize) -> bool {
        let holder = self.row.map(|row| row.holder);
        matches!(holder, Some(Holder::Leased(holder) | Holder::Expired(holder)) if usize::from(holder) == worker)
    }

    /// The number of a key that was never used, if the model has one left.
    pub(super) fn unused_key(&self) -> Option<u8> {
        let unused = self.keys.iter().position(|key| key.age == Age::Unused && !key.charged)?;
        u8::try_from(unused).ok()
    }

    /// Whether the lease of this worker goes on, by its own clock.
    pub(super) fn has_lease(&self, worker: usize) -> bool {
        let holder = self.row.map(|row| row.holder);
        matches!(holder, Some(Holder::Leased(holder) | Holder::Bypassed(holder)) if usize::from(holder) == worker)
    }
}

/// A state of these worlds, and the steps that it permits.
pub(super) type Steps<'a> = crate::step::Steps<'a, super::world::World, State>;
