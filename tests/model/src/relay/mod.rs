//! The outbox: handlers stage messages, and two relays publish them, one at a time.

mod defect;
mod lease;
mod publish;
mod staging;
mod state;
mod traces;
mod world;

pub(crate) use defect::Defect;
pub(crate) use traces::check as check_traces;
pub(crate) use world::{World, of, worlds};

use crate::property::Property;
use crate::search::{Model, Reach};

use state::{Lease, MESSAGES, RELAYS, Relay, Row, State, Steps};
use world::Broker;

impl Model for World {
    type State = State;

    const PROPERTIES: &'static [Property] = &[
        Property::OnlyCommittedLeaves,
        Property::NothingLost,
        Property::KeysInOrder,
        Property::DeletesFenced,
        Property::InnocentsLive,
        Property::Progress,
    ];

    fn first(&self) -> State {
        State {
            rows: [Row::Unwritten; MESSAGES],
            lease: Lease::Free,
            relays: [Relay::default(); RELAYS],
            flying: [[false; MESSAGES]; RELAYS],
            arrived: [None; MESSAGES],
            refused: [false; MESSAGES],
            unfenced: false,
            left: self.left,
        }
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        for message in staging::all(&steps) {
            staging::steps(&mut steps, message);
            publish::due(&mut steps, message);
        }
        for relay in 0..RELAYS {
            lease::steps(&mut steps, relay);
            lease::failures(&mut steps, relay);
            publish::read(&mut steps, relay);
            for message in staging::all(&steps) {
                publish::steps(&mut steps, relay, message);
                publish::broker(&mut steps, relay, message);
            }
        }
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        let mut messages = 0..self.messages.len();
        let arrived = |message: usize| state.arrived.iter().position(|arrived| *arrived == u8::try_from(message).ok());
        match property {
            Property::OnlyCommittedLeaves => messages.any(|message| {
                arrived(message).is_some() && matches!(state.rows[message], Row::Open | Row::RolledBack)
            }),
            Property::NothingLost => {
                let flies = |message: usize| state.flying.iter().any(|flying| flying[message]);
                messages
                    .any(|message| state.rows[message] == Row::Deleted && arrived(message).is_none() && !flies(message))
            }
            Property::KeysInOrder => messages.any(|message| {
                let overtaken = |before: usize| match state.rows[before] {
                    Row::Waiting { .. } | Row::Open | Row::Deleted => {
                        arrived(before) > arrived(message) || arrived(before).is_none()
                    }
                    _ => false,
                };
                arrived(message).is_some() && self.before(message).any(overtaken)
            }),
            Property::DeletesFenced => state.unfenced,
            Property::InnocentsLive => messages
                .any(|message| state.rows[message] == Row::Dead && self.messages[message].broker != Broker::Refuses),
            _ => false,
        }
    }

    fn is_quiet(&self, state: &State) -> bool {
        let done = |row: &Row| matches!(row, Row::Deleted | Row::Dead | Row::RolledBack);
        state.rows[..self.messages.len()].iter().all(done) && state.flying.iter().flatten().all(|flying| !flying)
    }
}
