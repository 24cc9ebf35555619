//! Batches: several messages in one transaction of one worker, and a handler among them that misbehaves.

mod defect;
mod outside;
mod state;
mod transaction;
mod world;

pub(crate) use defect::Defect;
pub(crate) use world::{World, of, worlds};

use crate::property::Property;
use crate::search::{Model, Reach};

use state::{DELIVERIES, MESSAGES, Message, Place, State, Steps};
use world::Handler;

impl Model for World {
    type State = State;

    const PROPERTIES: &'static [Property] = &[
        Property::AckAfterCommit,
        Property::NothingLost,
        Property::NothingTwice,
        Property::InnocentsLive,
        Property::AttemptsCountedOnce,
        Property::HalvesDead,
        Property::Progress,
    ];

    fn first(&self) -> State {
        State {
            deliveries: [Place::Queued { again: false }; DELIVERIES],
            messages: [Message::default(); MESSAGES],
            batch: None,
            kills: self.kills,
            losses: self.losses,
        }
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        self.deliveries().for_each(|(delivery, message)| outside::ack(&mut steps, delivery, message));
        if let Some(batch) = state.batch {
            transaction::run(&mut steps, batch);
        } else {
            transaction::begin(&mut steps);
            self.deliveries().for_each(|(delivery, message)| outside::delivery(&mut steps, delivery, message));
            (0..self.handlers.len()).for_each(|message| outside::row(&mut steps, message));
        }
        let works = state.deliveries.iter().any(|place| matches!(place, Place::Held { .. } | Place::Done));
        if state.kills > 0 && works {
            steps.setback("the worker", "is killed from outside", 0, |after| {
                after.kills -= 1;
                transaction::crash(after);
            });
        }
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        let mut messages = self.handlers.iter().zip(&state.messages);
        match property {
            Property::AckAfterCommit => self.deliveries().any(|(delivery, message)| {
                state.deliveries[delivery] == Place::Settled && !state.messages[message].kept
            }),
            Property::NothingLost => {
                messages.any(|(_, message)| message.kept && message.effects == 0 && message.row.is_none())
            }
            Property::NothingTwice => messages.any(|(_, message)| message.effects > 1),
            Property::InnocentsLive => messages
                .any(|(handler, message)| *handler == Handler::Succeeds && message.row.is_some_and(|row| row.dead)),
            // The deliveries of the message are settled, and what its handler has staged is nowhere.
            Property::HalvesDead => (0..self.handlers.len()).any(|message| {
                let known = state.messages[message];
                let settled =
                    |(delivery, of): (usize, usize)| of != message || state.deliveries[delivery] == Place::Settled;
                self.stages
                    && known.effects > 0
                    && !known.staged
                    && known.row.is_none()
                    && self.deliveries().all(settled)
            }),
            Property::AttemptsCountedOnce => {
                messages.any(|(_, message)| message.row.is_some_and(|row| row.attempts > message.failures))
            }
            _ => false,
        }
    }

    fn is_quiet(&self, state: &State) -> bool {
        let settled = self.deliveries().all(|(delivery, _)| state.deliveries[delivery] == Place::Settled);
        settled && state.batch.is_none() && state.messages.iter().all(|message| message.row.is_none_or(|row| row.dead))
    }
}
