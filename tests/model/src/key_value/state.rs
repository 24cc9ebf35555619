//! What can change: two deliveries of one message, and its record.

use super::world::World;

/// The deliveries of the message, each in a process of its own.
pub(super) const DELIVERIES: usize = 2;

pub(super) type Steps<'a> = crate::step::Steps<'a, World, State>;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(super) deliveries: [Place; DELIVERIES],
    pub(super) record: Option<Record>,
    /// How often the writes were applied, in whole or in part.
    pub(super) effects: u8,
    /// How many processes the handler has ended.
    pub(super) killed: u8,
    /// How often a process may still be killed from outside.
    pub(super) kills: u8,
    /// How many answers may still be lost.
    pub(super) losses: u8,
    /// How often a lease may still end while its process hangs.
    pub(super) hangs: u8,
}

/// Where a delivery is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// At the broker.
    Queued,
    /// In its process, with a token.
    Tried(Stage, u8),
    /// Acked.
    Settled,
}

/// The step that comes next; a step whose answer was lost comes again. The number beside it: the attempts that have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    Acquire,
    Run,
    /// Only without the rule that they are applied together with the completion.
    Apply,
    Complete,
    Bury,
    Ack,
}

/// The record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) status: Status,
    /// The delivery that has the token of the record; none if that token has ended with its process.
    pub(super) owner: Option<usize>,
    pub(super) starts: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Status {
    Running { is_over: bool },
    Done,
    Half,
    Dead,
}

impl State {
    /// The token of a delivery ends.
    pub(super) fn forget(&mut self, delivery: usize) {
        if let Some(record) = &mut self.record
            && record.owner == Some(delivery)
        {
            record.owner = None;
        }
    }

    /// The process of a delivery ends, and the broker has the delivery again.
    pub(super) fn crash(&mut self, delivery: usize) {
        self.forget(delivery);
        self.deliveries[delivery] = Place::Queued;
    }
}
