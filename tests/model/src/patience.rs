//! How long a process waits for the lock that a row needs which may have ended its process, and for how long the lock is
//! free after a wait in vain. Time passes in ticks; other work may start whenever the lock is free, and run for up to
//! [`LONGEST`] ticks, which is more than the first wait.

use crate::property::Property;
use crate::search::{Model, Reach};
use crate::step::Steps;

/// The length of the first wait: a lease.
const LEASE: u8 = 1;
/// How long other work runs at most.
const LONGEST: u8 = 7;
/// By then, the process must have had the lock.
const END: u8 = 64;

/// What the process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Phase {
    /// Wants the lock, for so many ticks more. Nothing starts.
    Wants(u8),
    /// Lets other work start for so many ticks.
    Leaves(u8),
    /// Has had the lock.
    Done,
}

/// Everything that can change.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    phase: Phase,
    /// How long the present or last wait may be.
    limit: u8,
    /// How long the other work still runs that has started last.
    runs: u8,
    /// The time, and for how much of it the lock was wanted.
    clock: u8,
    wanted: u8,
}

/// A process, with all rules or without one of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience(Option<Defect>);

/// A rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    EqualWaits,
    NoPause,
    NoEnd,
}

impl Defect {
    /// All of them, each with what is done instead of the rule, and the property that it violates.
    pub(crate) const ALL: &'static [(Self, &'static str, Property)] = &[
        (Self::EqualWaits, "a wait in vain does not double the next one", Property::Progress),
        (Self::NoPause, "the lock is wanted again at once after a wait in vain", Property::OthersStart),
        (Self::NoEnd, "the lock is wanted until the process has it", Property::OthersStart),
    ];
}

impl Patience {
    /// All rules.
    pub(crate) const SOUND: Self = Self(None);

    /// All but one.
    pub(crate) fn broken(defect: Defect) -> Self {
        Self(Some(defect))
    }

    fn gives_up(self, after: &mut State) {
        let waited = after.limit;
        if self.0 != Some(Defect::EqualWaits) {
            after.limit = waited.saturating_mul(2);
        }
        after.phase = match self.0 {
            Some(Defect::NoPause) => Phase::Wants(after.limit),
            _ => Phase::Leaves(waited),
        };
    }
}

impl Model for Patience {
    type State = State;

    const PROPERTIES: &'static [Property] = &[Property::OthersStart, Property::Progress];

    fn first(&self) -> State {
        State { phase: Phase::Wants(LEASE), limit: LEASE, runs: LONGEST, clock: 0, wanted: 0 }
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        let late = state.clock == END;
        let tick = |after: &mut State| {
            after.clock += 1;
            after.runs = after.runs.saturating_sub(1);
        };
        match state.phase {
            Phase::Done => {}
            Phase::Wants(_) if state.runs == 0 => {
                steps.step("", "nothing runs, and the process has the lock", 0, |after| after.phase = Phase::Done);
            }
            _ if late => {}
            Phase::Wants(0) if self.0 != Some(Defect::NoEnd) => {
                steps.step("", "the process has waited in vain", 0, |after| self.gives_up(after));
            }
            Phase::Wants(left) => steps.step("", "time passes, and the lock is wanted", 0, |after| {
                tick(after);
                after.wanted += 1;
                after.phase = Phase::Wants(left.saturating_sub(1));
            }),
            Phase::Leaves(left) => {
                for runs in state.runs..=LONGEST {
                    steps.step("", "time passes, and other work may start", 0, |after| {
                        after.runs = runs;
                        tick(after);
                        after.phase = match left {
                            0 | 1 => Phase::Wants(after.limit),
                            left => Phase::Leaves(left - 1),
                        };
                    });
                }
            }
        }
    }

    /// Nothing starts for longer than one wait, and than half of the time but for the present wait.
    fn violates(&self, state: &State, property: Property) -> bool {
        let Phase::Wants(left) = state.phase else { return false };
        let before = state.wanted.saturating_sub(state.limit - left);
        property == Property::OthersStart && (2 * before > state.clock || state.wanted - before > state.limit)
    }

    fn is_quiet(&self, state: &State) -> bool {
        state.phase == Phase::Done
    }
}
