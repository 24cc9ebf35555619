//! Deliveries and inbox rows: what two workers, a broker, a database and an operator do with them.

mod broker;
mod check;
mod claims;
mod classify;
mod crash;
mod database;
mod defect;
mod equal;
mod facts;
mod handler;
mod isolation;
mod keyless;
mod log;
mod names;
mod operator;
mod outage;
mod prune;
mod rows;
mod scenario;
mod slot;
mod state;
mod storing;
mod task;
mod traces;
mod worlds;

pub(crate) use defect::Defect;
pub(crate) use scenario::Scenario;
pub(crate) use traces::check as check_traces;
pub(crate) use worlds::{limits, of, worlds};

use crate::property::Property;
use crate::search::{Model, Reach};

use database::Claim;
use facts::Facts;
use slot::ALL;
use state::{DELIVERIES, Log, MESSAGES, Place, State, Steps};
use task::Work;

impl Model for Scenario {
    type State = State;

    const PROPERTIES: &'static [Property] = &[
        Property::AckAfterCommit,
        Property::NothingLost,
        Property::NothingTwice,
        Property::InnocentsLive,
        Property::Isolated,
        Property::KillersEnd,
        Property::BreakersEnd,
        Property::StartsCountedOnce,
        Property::AttemptsCountedOnce,
        Property::ClaimsTrue,
        Property::HalvesDead,
        Property::DiscardsStay,
        Property::KeysInOrder,
        Property::Progress,
    ];

    fn first(&self) -> State {
        let mut first = State {
            claims: [None; MESSAGES],
            rows: [None; MESSAGES],
            pruned_through: None,
            unwritten: None,
            deliveries: [Place::Queued(false); DELIVERIES],
            log: Log::default(),
            tasks: [None; ALL],
            facts: [Facts::default(); MESSAGES],
            left: self.left,
            clock: 0,
            away: None,
        };
        for (message, _) in (0..).zip(self.messages).filter(|(_, message)| message.copies == 0) {
            first.claims[self.key(message)] = Some(Claim::undated(message));
            first.insert(message, 0, None);
        }
        log::assign(self, &mut first, 0);
        first
    }

    fn steps(&self, state: &State, reach: &mut Reach<'_, Self>) {
        let mut steps = Steps::new(self, state, reach);
        for slot in (0..self.workers).filter_map(|worker| state.idle(worker)) {
            broker::receive(&mut steps, slot);
            rows::fetch(&mut steps, slot);
            isolation::begin(&mut steps, slot);
        }
        for (slot, task) in state.busy() {
            match (task.work, task.stage) {
                _ if outage::is_away(&steps, task) => outage::steps(&mut steps, slot, task),
                (Work::Delivery(delivery), stage) => claims::steps(&mut steps, slot, delivery, stage),
                (Work::Turn(isolation), _) => isolation::wait(&mut steps, slot, isolation),
                (Work::Row(message, _), stage) => rows::steps(&mut steps, slot, message, stage),
            }
        }
        isolation::judge(&mut steps);
        outage::changes(&mut steps);
        broker::steps(&mut steps);
        crash::from_outside(&mut steps);
        prune::pause(&mut steps);
        prune::tick(&mut steps);
        prune::prune(&mut steps);
        operator::steps(&mut steps);
    }

    fn violates(&self, state: &State, property: Property) -> bool {
        check::violates(self, state, property)
    }

    fn is_quiet(&self, state: &State) -> bool {
        let settled = state.deliveries[..self.deliveries()].iter().all(|place| *place == Place::Settled);
        settled && state.busy().next().is_none() && state.rows.iter().flatten().all(|row| row.dead.is_some())
    }

    fn canonical(&self, state: State) -> State {
        equal::canonical(self, state)
    }
}
