//! A key-value store: the record of a message with its lease, and two deliveries of it in two processes.

mod defect;
mod process;
mod state;
mod world;

pub(crate) use defect::Defect;
pub(crate) use world::{World, of, worlds};

use crate::property::Property;
use crate::search::{Model, Reach};

use state::{DELIVERIES, Place, State, Status, Steps};
use world::{Handler, MAX_STARTS};

impl Model for World {
    type State = State;

    const PROPERTIES: &'static [Property] = &[
        Property::AckAfterCommit,
        Property::NothingTwice,
        Property::InnocentsLive,
        Property::KillersEnd,
        Property::HalvesDead,
        Property::ClaimsTrue,
        Property::Progress,
    ];

    fn first(&self) -> State {
        State {
            deliveries: [Place::Queued; DELIVERIES],
            record: None,
            effects: 0,
            killed: 0,
            kills: self.kills,
            losses: self.losses,
            hangs: self.hangs,
        }
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        (0..DELIVERIES).for_each(|delivery| process::steps(&mut steps, delivery));
        process::lease_ends(&mut steps);
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        let status = state.record.map(|record| record.status);
        let is_settled = state.deliveries.contains(&Place::Settled);
        match property {
            Property::AckAfterCommit => is_settled && state.effects == 0 && status != Some(Status::Dead),
            Property::NothingTwice => state.effects > 1,
            Property::InnocentsLive => self.handler == Handler::Succeeds && status == Some(Status::Dead),
            Property::KillersEnd => state.killed > MAX_STARTS,
            Property::HalvesDead => self.handler == Handler::HalfApplied && is_settled && status != Some(Status::Dead),
            Property::ClaimsTrue => {
                self.handler != Handler::HalfApplied && state.effects > 0 && status == Some(Status::Dead)
            }
            _ => false,
        }
    }

    fn is_quiet(&self, state: &State) -> bool {
        state.deliveries.iter().all(|place| *place == Place::Settled)
    }
}
