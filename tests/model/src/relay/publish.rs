//! A relay reads all that is left, publishes, and deletes what is confirmed.

use super::Steps;
use super::defect::Defect;
use super::lane::NAMES;
use super::staging::{all, is_visible};
use super::state::{Known, Lane, Row, State};
use super::world::{Broker, MAX_ATTEMPTS};

/// Reads every message that is left and due. One whose transaction commits late is found by the next read.
pub(super) fn read(steps: &mut Steps<'_>, relay: usize) {
    let (world, state) = (steps.world, steps.state);
    let memory = state.relays[relay];
    if !memory.holds {
        return;
    }
    let from = if world.has(Defect::Cursor) { usize::from(memory.cursor) } else { 0 };
    let new = |message: &usize| is_visible(state, *message) && memory.known[*message] == Known::Unread;
    let found: Vec<usize> = all(steps).filter(|message| *message >= from).filter(new).collect();
    let Some(last) = found.last() else { return };
    let behind = u8::try_from(*last + 1).unwrap_or_default();
    steps.step(NAMES[relay], "reads the outbox", 0, |after| {
        found.iter().for_each(|message| after.relays[relay].known[*message] = Known::Read);
        if world.has(Defect::Cursor) {
            after.relays[relay].cursor = behind;
        }
    });
}

/// The next step of a relay with one message.
pub(super) fn steps(steps: &mut Steps<'_>, relay: usize, message: usize) {
    let (world, state) = (steps.world, steps.state);
    let number = u8::try_from(message).unwrap_or_default();
    match state.relays[relay].known[message] {
        Known::Read if may_publish(steps, relay, message) => {
            steps.step(NAMES[relay], "publishes _", number, |after| {
                after.relays[relay].known[message] = Known::Sent;
                after.flying[relay][message] = true;
            });
        }
        Known::Sent if world.has(Defect::DeleteBeforeConfirm) => delete(steps, relay, message),
        Known::Confirmed => delete(steps, relay, message),
        Known::Refused => refused(steps, relay, message),
        Known::Unread | Known::Read | Known::Sent => {}
    }
}

/// Whether a relay may publish a message now: enough is left of its lease, by its own clock, and no earlier message of
/// the key is on its way, waits for its next attempt, or was not read.
fn may_publish(steps: &Steps<'_>, relay: usize, message: usize) -> bool {
    let (world, state) = (steps.world, steps.state);
    let leased = matches!(state.lane, Lane::Leased(holder) if usize::from(holder) == relay);
    let memory = state.relays[relay];
    let first = world.before(message).all(|before| {
        let unblocked = world.has(Defect::RefusedKeyNotBlocked) || !is_blocked(state, before);
        memory.known[before] == Known::Unread && unblocked
    });
    (leased || world.has(Defect::PublishesWithoutLease)) && (first || world.has(Defect::LaterOfKeyOvertakes))
}

/// Whether the message was refused, and waits for its next attempt. A read leaves out what is behind it.
fn is_blocked(state: &State, message: usize) -> bool {
    matches!(state.rows[message], Row::Waiting { due: false, .. })
}

/// Deletes a confirmed message, by the token of the lane. Without it, the message belongs to another relay.
fn delete(steps: &mut Steps<'_>, relay: usize, message: usize) {
    let (world, state) = (steps.world, steps.state);
    let number = u8::try_from(message).unwrap_or_default();
    let fenced = state.has_token(relay);
    if !fenced && !world.has(Defect::DeleteWithoutToken) {
        return steps.step(NAMES[relay], "deletes _, which is no longer its own: nothing", number, |after| {
            after.relays[relay] = super::state::Relay::default();
        });
    }
    steps.step(NAMES[relay], "deletes _", number, |after| {
        after.relays[relay].known[message] = Known::Unread;
        if matches!(after.rows[message], Row::Waiting { .. } | Row::Early) {
            after.rows[message] = Row::Deleted;
            after.unfenced |= !fenced;
        }
    });
}

/// Records a refusal, by the token: the message and its key wait, or it is given up, and its key goes on.
fn refused(steps: &mut Steps<'_>, relay: usize, message: usize) {
    let number = u8::try_from(message).unwrap_or_default();
    if !steps.state.has_token(relay) {
        return steps.step(NAMES[relay], "records the refusal of _, which is no longer its own: nothing", number, |after| {
            after.relays[relay].known[message] = Known::Unread;
        });
    }
    steps.step(NAMES[relay], "records the refusal of _", number, |after| {
        after.relays[relay].known[message] = Known::Unread;
        if let Row::Waiting { attempts, .. } = after.rows[message] {
            let attempts = attempts + 1;
            let waits = Row::Waiting { attempts, due: false };
            after.rows[message] = if attempts >= MAX_ATTEMPTS { Row::Dead } else { waits };
        }
    });
}

/// A published message reaches the broker, or is lost; and the time of a refused one comes.
pub(super) fn broker(steps: &mut Steps<'_>, relay: usize, message: usize) {
    let (world, state) = (steps.world, steps.state);
    let number = u8::try_from(message).unwrap_or_default();
    if !state.flying[relay][message] {
        return;
    }
    let refuses = match world.messages[message].broker {
        Broker::Takes => false,
        Broker::RefusesOnce => !state.refused[message],
        Broker::Refuses => true,
    };
    let returned = if world.has(Defect::ReturnedIsConfirmed) { Known::Confirmed } else { Known::Refused };
    if refuses {
        return steps.step("the broker", "refuses _", number, |after| {
            after.refused[message] = true;
            answer(after, relay, message, returned);
        });
    }
    steps.step("the broker", "takes _, and confirms it", number, |after| {
        arrive(after, number);
        answer(after, relay, message, Known::Confirmed);
    });
    if state.left.losses == 0 {
        return;
    }
    let again = if world.has(Defect::AwayIsCharged) { Known::Refused } else { Known::Read };
    steps.setback("the broker", "takes _, and its confirm is lost", number, |after| {
        after.left.losses -= 1;
        arrive(after, number);
        answer(after, relay, message, again);
    });
    steps.setback("the broker", "is away, and does not get _", number, |after| {
        after.left.losses -= 1;
        answer(after, relay, message, again);
    });
}

/// The relay gets an answer, if it still waits for one.
fn answer(after: &mut State, relay: usize, message: usize, known: Known) {
    after.flying[relay][message] = false;
    if after.relays[relay].known[message] == Known::Sent {
        after.relays[relay].known[message] = known;
    }
}

fn arrive(after: &mut State, message: u8) {
    if !after.has_arrived(usize::from(message)) {
        if let Some(place) = after.arrived.iter_mut().find(|place| place.is_none()) {
            *place = Some(message);
        }
    }
}

/// The next attempt of a refused message is due.
pub(super) fn due(steps: &mut Steps<'_>, message: usize) {
    if let Row::Waiting { attempts, due: false } = steps.state.rows[message] {
        let number = u8::try_from(message).unwrap_or_default();
        steps.step("", "the next attempt of _ is due", number, |after| {
            after.rows[message] = Row::Waiting { attempts, due: true };
        });
    }
}
