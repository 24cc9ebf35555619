//! Whether a state has the properties that every state must have.

use super::database::{Reason, Row};
use super::scenario::{Handler, MAX_LOST_CONNECTIONS, MAX_STARTS, Scenario};
use super::state::{Place, State};
use super::task::Work;
use crate::property::Property;

/// Whether the state violates the property.
pub(super) fn violates(scenario: &Scenario, state: &State, property: Property) -> bool {
    let messages = (0..).zip(scenario.messages);
    let facts = |message: u8| state.facts[usize::from(message)];
    let row = |message: u8| state.rows[usize::from(message)];
    let each = |wrong: &dyn Fn(u8, Handler, u8) -> bool| {
        messages.clone().any(|(message, known)| wrong(message, known.handler, known.copies))
    };
    let works = |message: u8| {
        state.busy().any(|(_, task)| match task.work {
            Work::Delivery(delivery) => scenario.message_of(delivery) == message,
            Work::Row(of, _) => of == message,
            Work::Turn(_) => false,
        })
    };
    match property {
        Property::AckAfterCommit => (0..scenario.deliveries()).any(|delivery| {
            let message = scenario.message_of(u8::try_from(delivery).unwrap_or_default());
            state.deliveries[delivery] == Place::Settled && !facts(message).kept
        }),
        Property::NothingLost => each(&|message, _, _| {
            let facts = facts(message);
            let accounted = facts.effects > 0 || facts.discarded || facts.moved;
            facts.kept && !accounted && row(message).is_none() && !works(message)
        }),
        Property::NothingTwice => each(&|message, _, _| facts(message).effects > facts(message).forgotten + 1),
        Property::InnocentsLive => each(&|message, handler, _| {
            let dead = row(message).and_then(|row| row.dead);
            match handler {
                Handler::Succeeds => matches!(dead, Some(Reason::Failed | Reason::Crashed | Reason::Broke)),
                Handler::FailsOnce => matches!(dead, Some(Reason::Crashed | Reason::Broke)),
                _ => false,
            }
        }),
        // A process that ends in between leaves a duplicate.
        Property::HalvesDead => each(&|message, handler, _| {
            let alive = (state.left.kills, state.left.losses) == (scenario.left.kills, scenario.left.losses);
            let undead = row(message).is_none_or(|row| row.dead.is_none()) && !facts(message).discarded;
            handler == Handler::RunsCommit && alive && facts(message).effects > 0 && undead && !works(message)
        }),
        // A further copy may again be a conflict, or too old.
        Property::DiscardsStay => each(&|message, _, _| {
            let dead = row(message).map(|row| row.dead);
            facts(message).discarded
                && dead.is_some_and(|dead| !matches!(dead, Some(Reason::Conflict | Reason::TooOld)))
        }),
        Property::Isolated => each(&|message, _, _| facts(message).charged),
        Property::KeysInOrder => each(&|message, _, _| {
            let undone = |before: u8| facts(before).effects == 0 && row(before).is_none_or(|row| row.dead.is_none());
            scenario.ordered && facts(message).effects > 0 && (0..message).any(undone)
        }),
        Property::ClaimsTrue => untrue(scenario, state),
        _ => miscounted(scenario, state, property),
    }
}

/// Whether the state violates a property of the counts: starts, breaks, attempts, and the deaths of processes.
fn miscounted(scenario: &Scenario, state: &State, property: Property) -> bool {
    let facts = |message: u8| state.facts[usize::from(message)];
    let row = |message: u8| state.rows[usize::from(message)];
    let each = |wrong: &dyn Fn(u8, u8) -> bool| {
        (0..).zip(scenario.messages).any(|(message, known)| wrong(message, known.copies))
    };
    match property {
        Property::KillersEnd => each(&|message, copies| facts(message).deaths > MAX_STARTS + copies),
        // A break whose process ends before it is recorded is not counted.
        Property::BreakersEnd => {
            each(&|message, copies| facts(message).breaks > MAX_LOST_CONNECTIONS + copies + scenario.left.kills)
        }
        Property::StartsCountedOnce => {
            each(&|message, _| row(message).is_some_and(|row| row.dead.is_none() && row.starts > facts(message).open))
        }
        Property::AttemptsCountedOnce => {
            each(&|message, _| row(message).is_some_and(|row| row.attempts > facts(message).failures))
        }
        _ => false,
    }
}

/// Whether a claim says what is not so. A dated one: the message was processed or discarded. An undated one: it has a
/// row that owns the claim.
fn untrue(scenario: &Scenario, state: &State) -> bool {
    let owns = |message: u8| state.rows[usize::from(message)].is_some_and(Row::owns_claim);
    let claims = state.claims.iter().flatten().any(|claim| {
        let facts = state.facts[usize::from(claim.message)];
        match claim.date {
            Some(_) => facts.effects == facts.forgotten && !facts.discarded || owns(claim.message),
            None => !owns(claim.message),
        }
    });
    let rows = (0..).zip(scenario.messages).any(|(message, known)| {
        let claim = state.claims[usize::from(known.key)];
        owns(message) && claim.is_none_or(|claim| claim.message != message)
    });
    claims || rows
}
