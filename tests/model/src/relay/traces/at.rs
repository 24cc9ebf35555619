//! A place on the way through the lines of a message: the state of the model, and the lines that are done.

use super::queue::{LEFT, Queue};
use super::table::KILLED;
use crate::relay::lease::NAMES;
use crate::relay::state::{Known, Lease, MESSAGES, RELAYS, Relay, State};
use crate::search::Model;
use crate::traces::done::Done;

/// A place on the way.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct At {
    pub(super) state: State,
    pub(super) done: Done,
    /// The process that each relay of the model stands for, while it has the lease or a message is on its way.
    pub(super) relays: [Option<usize>; RELAYS],
    /// The messages that each relay has read since it has taken the lease.
    pub(super) read: [[bool; MESSAGES]; RELAYS],
    /// Until when each relay may publish, at the latest.
    pub(super) until: [u64; RELAYS],
    /// When the lease ends, at the earliest.
    pub(super) leased: u64,
}

impl At {
    /// Before the first line.
    pub(super) fn first(queue: &Queue) -> Self {
        let mut first = Self {
            state: queue.world.first(),
            done: Done::none(&queue.lines.all),
            relays: [None; RELAYS],
            read: [[false; MESSAGES]; RELAYS],
            until: [u64::MAX; RELAYS],
            leased: 0,
        };
        first.forget();
        first
    }

    /// The same place behind a line.
    pub(super) fn behind(mut self, line: usize) -> Self {
        self.done.add(line);
        self
    }

    /// The same place with the next state.
    pub(super) fn with(&self, state: State) -> Self {
        let mut next = Self { state, ..self.clone() };
        next.forget();
        next
    }

    /// As many failures are left as before, what only properties read is forgotten, and a relay without work stands for no
    /// process.
    fn forget(&mut self) {
        self.state.left = LEFT;
        (self.state.arrived, self.state.refused, self.state.unfenced) = ([None; MESSAGES], [false; MESSAGES], false);
        for relay in 0..RELAYS {
            if !self.state.relays[relay].holds {
                self.read[relay] = [false; MESSAGES];
            }
            if self.is_idle(relay) {
                self.relays[relay] = None;
            }
        }
    }

    fn is_idle(&self, relay: usize) -> bool {
        self.state.relays[relay] == Relay::default() && !self.state.flying[relay].contains(&true)
    }

    /// Whether this relay is the one that takes the lease: both are equal while they have no work.
    pub(super) fn is_next(&self, relay: usize) -> bool {
        (0..RELAYS).find(|relay| self.is_idle(*relay)) == Some(relay)
    }

    /// The same place if this relay stands for the process; `None` if it cannot.
    pub(super) fn bound(&self, queue: &Queue, relay: usize, process: usize) -> Option<Self> {
        let is_dead = queue.lines.is_dead(process, &self.done);
        if is_dead || self.relays[relay].is_some_and(|bound| bound != process) {
            return None;
        }
        let mut bound = self.clone();
        bound.relays[relay] = Some(process);
        Some(bound)
    }

    /// The relay of a process that has the lease.
    pub(super) fn leases(&self, process: usize) -> Option<usize> {
        let Lease::Leased(relay) = self.state.lease else { return None };
        Some(usize::from(relay)).filter(|relay| self.relays[*relay] == Some(process))
    }

    /// The same place once a process has read a message that is committed.
    pub(super) fn reads(&self, process: usize, message: u8) -> Option<Self> {
        let message = usize::from(message);
        let knows = |relay: &usize| {
            self.relays[*relay] == Some(process) && self.state.relays[*relay].known[message] != Known::Unread
        };
        let relay = (0..RELAYS).find(knows)?;
        let mut next = self.clone();
        next.read[relay][message] = true;
        Some(next)
    }

    /// The same place once a process has ended, with all its work.
    pub(super) fn killed(mut self, queue: &Queue, process: usize) -> Self {
        for (relay, name) in NAMES.into_iter().enumerate() {
            if self.relays[relay] != Some(process) {
                continue;
            }
            let mut killed = None;
            queue.world.steps(&self.state, &mut |step, after| {
                if step.what == KILLED && step.who == name {
                    killed = Some(after);
                }
            });
            self = killed.map_or(self.clone(), |killed| self.with(killed));
            // Its requests that are on their way belong to nobody.
            self.relays[relay] = None;
        }
        self
    }
}
