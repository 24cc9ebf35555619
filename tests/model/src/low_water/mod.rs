//! The low-water mark of a relay: the id from which it reads on, above which each message must be that a read has still to find.
//!
//! A transaction draws its number before the ids of its messages. A mark has a number, too, and the highest id that was drawn by
//! then, so every message up to that id is one of a transaction below the mark. A snapshot lists the transactions that are open
//! as PostgreSQL does: none that has begun after the last one that has ended.

mod defect;
mod relay;
mod state;
mod writers;

pub(crate) use defect::Defect;

use crate::property::Property;
use crate::search::{Model, Reach};
use crate::step;

use state::{Phase, State, WRITERS, Writer};

type Steps<'a> = step::Steps<'a, World, State>;

/// The keys of the messages. Those of one key must leave in the order in which they were staged.
const KEYS: [u8; WRITERS] = [0, 0, 1];

/// A world to search.
#[derive(Debug, Clone)]
pub(crate) struct World {
    /// Its subject.
    pub(crate) name: &'static str,
    /// Whether a read brings one message at most.
    limited: bool,
    rollbacks: u8,
    failovers: u8,
    /// The rule that is broken.
    defect: Option<Defect>,
}

impl World {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The same world with a broken rule.
    pub(crate) fn broken(self, defect: Defect) -> Self {
        Self { defect: Some(defect), ..self }
    }
}

/// The worlds.
pub(crate) fn worlds() -> Vec<World> {
    let world = |name, limited, rollbacks, failovers| World { name, limited, rollbacks, failovers, defect: None };
    vec![
        world("reads from a low-water mark", false, 1, 0),
        world("reads from a low-water mark that a limit cuts", true, 1, 0),
        world("reads from a low-water mark, and a failover", true, 0, 1),
    ]
}

/// The world in which this broken rule must fail.
pub(crate) fn of(defect: Defect) -> World {
    let failovers = u8::from(defect == Defect::FailureKeepsLowWater);
    World { name: "", limited: defect == Defect::CutReadCoversAll, rollbacks: 0, failovers, defect: None }
}

impl Model for World {
    type State = State;

    const PROPERTIES: &'static [Property] = &[Property::NothingLost, Property::KeysInOrder, Property::Progress];

    fn first(&self) -> State {
        State {
            writers: [Writer::default(); WRITERS],
            next_number: 1,
            next_id: 1,
            ended: 0,
            low_water: 0,
            mark: None,
            reached: (0, 0),
            remembered: [None; WRITERS],
            reading: None,
            rollbacks: self.rollbacks,
            failovers: self.failovers,
        }
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        (0..WRITERS).for_each(|writer| writers::steps(&mut steps, writer));
        writers::failover(&mut steps);
        relay::steps(&mut steps);
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        let mut writers = 0..WRITERS;
        match property {
            // No read from the low-water mark finds it, and none will begin lower because of it.
            Property::NothingLost => writers.any(|writer| {
                let Writer { phase, id, .. } = state.writers[writer];
                let waits = id > 0 && matches!(phase, Phase::Begun | Phase::Staged | Phase::Committed);
                waits && id <= state.low_water && state.remembered[writer].is_none_or(|back| id <= back)
            }),
            Property::KeysInOrder => writers.any(|writer| {
                let is_overtaken = |before: usize| {
                    let (before, same) = (state.writers[before], KEYS[before] == KEYS[writer]);
                    same && before.phase == Phase::Committed && before.id < state.writers[writer].id
                };
                state.writers[writer].phase == Phase::Published && (0..WRITERS).any(is_overtaken)
            }),
            _ => false,
        }
    }

    fn is_quiet(&self, state: &State) -> bool {
        state.writers.iter().all(|writer| matches!(writer.phase, Phase::Gone | Phase::Published))
    }
}
