//! A relay reads all that is left, publishes, and deletes what is confirmed.

use super::defect::Defect;
use super::lease::NAMES;
use super::staging::all;
use super::state::{Known, Lease, Relay, Row, State, Steps};
use super::world::Broker;

/// Reads every message that is left. One whose transaction commits late is found by the next read. One that is not due
/// blocks its key.
pub(super) fn read(steps: &mut Steps<'_>, relay: usize) {
    let (world, state) = (steps.world, steps.state);
    let memory = state.relays[relay];
    if !memory.holds {
        return;
    }
    let from = if world.has(Defect::Cursor) { usize::from(memory.cursor) } else { 0 };
    let new = |message: &usize| match (state.rows[*message], memory.known[*message]) {
        (Row::Waiting { due, .. }, Known::Waits) => due,
        (Row::Waiting { .. } | Row::Early, Known::Unread) => true,
        _ => false,
    };
    let found: Vec<usize> = all(steps).filter(|message| *message >= from).filter(new).collect();
    let Some(last) = found.last() else { return };
    let behind = u8::try_from(*last + 1).unwrap_or_default();
    steps.step(NAMES[relay], "reads the outbox", 0, |after| {
        for message in &found {
            let waits = matches!(after.rows[*message], Row::Waiting { due: false, .. });
            after.relays[relay].known[*message] = if waits { Known::Waits } else { Known::Read };
        }
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
        Known::Unread | Known::Waits | Known::Read | Known::Sent => {}
    }
}

/// Whether a relay may publish a message now: enough is left of its lease, by its own clock, and no earlier message of
/// the key is on its way or waits for its next attempt. One that is confirmed may still have to be deleted.
fn may_publish(steps: &Steps<'_>, relay: usize, message: usize) -> bool {
    let (world, state) = (steps.world, steps.state);
    let leased = matches!(state.lease, Lease::Leased(holder) if usize::from(holder) == relay);
    let first = world.before(message).all(|before| match state.relays[relay].known[before] {
        Known::Unread | Known::Confirmed => true,
        Known::Waits => world.has(Defect::RefusedKeyNotBlocked),
        Known::Read | Known::Sent | Known::Refused => false,
    });
    leased && (first || world.has(Defect::LaterOfKeyOvertakes))
}

/// Deletes a confirmed message, by the token of the lease. Without it, the message belongs to another relay.
fn delete(steps: &mut Steps<'_>, relay: usize, message: usize) {
    let (world, state) = (steps.world, steps.state);
    let number = u8::try_from(message).unwrap_or_default();
    let fenced = state.has_token(relay);
    if !fenced && !world.has(Defect::DeleteWithoutToken) {
        return steps.step(NAMES[relay], "deletes _, which is no longer its own: nothing", number, |after| {
            after.relays[relay] = Relay::default();
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
        return steps.step(
            NAMES[relay],
            "records the refusal of _, which is no longer its own: nothing",
            number,
            |after| {
                after.relays[relay] = Relay::default();
            },
        );
    }
    let Row::Waiting { attempts, .. } = steps.state.rows[message] else {
        return steps.step(NAMES[relay], "records the refusal of _, which is gone: nothing", number, |after| {
            after.relays[relay].known[message] = Known::Unread;
        });
    };
    let (attempts, most) = (attempts.saturating_add(1), steps.world.attempts);
    if most.is_none_or(|most| attempts < most) {
        steps.step(NAMES[relay], "records the refusal of _", number, |after| {
            after.rows[message] = Row::Waiting { attempts, due: false };
            after.relays[relay].known[message] = Known::Waits;
        });
    }
    if most.is_none_or(|most| attempts >= most) {
        steps.step(NAMES[relay], "records the last refusal of _, and gives it up", number, |after| {
            after.rows[message] = Row::Dead;
            after.relays[relay].known[message] = Known::Unread;
        });
    }
}

/// A published message reaches the broker, or is lost; and the time of a refused one comes.
pub(super) fn broker(steps: &mut Steps<'_>, relay: usize, message: usize) {
    let (world, state) = (steps.world, steps.state);
    let number = u8::try_from(message).unwrap_or_default();
    if !state.flying[relay][message] {
        return;
    }
    let (refuses, takes) = match world.messages[message].broker {
        Broker::Fetches => (false, true),
        Broker::RefusesOnce => (!state.refused[message], state.refused[message]),
        Broker::Refuses => (true, false),
        Broker::Anything => (true, true),
    };
    let returned = if world.has(Defect::ReturnedIsConfirmed) { Known::Confirmed } else { Known::Refused };
    if refuses {
        steps.step("the broker", "refuses _", number, |after| {
            after.refused[message] = true;
            answer(after, relay, message, returned);
        });
    }
    if !takes {
        return;
    }
    steps.step("the broker", "takes _, and confirms it", number, |after| {
        arrive(after, number);
        answer(after, relay, message, Known::Confirmed);
    });
    if state.left.losses == 0 {
        return;
    }
    let again = if world.has(Defect::AwayCostsAttempt) { Known::Refused } else { Known::Read };
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
    let first = !after.has_arrived(usize::from(message));
    if let Some(place) = after.arrived.iter_mut().find(|place| first && place.is_none()) {
        *place = Some(message);
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
