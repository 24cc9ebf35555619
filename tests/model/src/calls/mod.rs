//! Calls to a provider outside of the transaction: two workers fetch a row, call under a key that the row keeps, and
//! complete with the answer.

mod defect;
mod failure;
mod operator;
mod producer;
mod provider;
mod row;
mod state;
mod traces;
mod world;

pub(crate) use defect::Defect;
pub(crate) use traces::check as check_traces;
pub(crate) use world::{World, of, worlds};

use crate::property::Property;
use crate::search::{Model, Reach};

use state::{KEYS, Key, Row, Stage, State, Steps, WORKERS};

impl Model for World {
    type State = State;

    const PROPERTIES: &'static [Property] = &[
        Property::ChargedOnce,
        Property::NothingTwice,
        Property::NothingLost,
        Property::AnswersKept,
        Property::InnocentsLive,
        Property::Progress,
    ];

    /// The message was stored before, with its key, and acked: the row is the intent.
    fn first(&self) -> State {
        State {
            row: Some(Row::stored(0)),
            workers: [Stage::Idle; WORKERS],
            flying: [None; WORKERS],
            keys: [Key::default(); KEYS],
            charges: 0,
            completed: 0,
            saved: None,
            recalled: false,
            left: self.left,
        }
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        for worker in 0..WORKERS {
            match state.workers[worker] {
                // A new process has no request on its way; the model has room for one of each worker.
                Stage::Idle if state.flying[worker].is_some() => {}
                Stage::Idle => row::fetch(&mut steps, worker),
                Stage::Fetched { first } => row::decide(&mut steps, worker, first),
                Stage::Sending { first, key } => row::send(&mut steps, worker, first, key),
                Stage::Calling { .. } => {}
                Stage::Answered { key } => row::complete(&mut steps, worker, key),
                Stage::NotThere => row::date(&mut steps, worker),
                Stage::NotDone { first } => row::not_done(&mut steps, worker, first),
                Stage::Doubt => row::doubt(&mut steps, worker),
            }
            provider::steps(&mut steps, worker);
            failure::steps(&mut steps, worker);
        }
        provider::time(&mut steps);
        operator::steps(&mut steps);
        producer::steps(&mut steps);
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        match property {
            Property::ChargedOnce => state.charges > 1,
            Property::NothingTwice => state.completed > 1,
            Property::NothingLost => state.completed > 0 && state.charges == 0,
            Property::AnswersKept => state.recalled,
            // Nothing was ever in doubt.
            Property::InnocentsLive => {
                let (left, all) = (state.left, self.left);
                let doubtless = (left.kills, left.pauses, left.losses) == (all.kills, all.pauses, all.losses);
                doubtless && state.row.is_some_and(|row| row.dead.is_some())
            }
            _ => false,
        }
    }

    fn is_quiet(&self, state: &State) -> bool {
        state.row.is_none_or(|row| row.dead.is_some()) && state.workers == [Stage::Idle; WORKERS]
    }
}
