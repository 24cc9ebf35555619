//! A row without a key: that of a conflict which an operator has sent back. It goes through decode and key again. In one commit its
//! message is claimed under the key that the handler gives it now, and the row is replaced by one that has this key.

use std::iter;

use super::classify::is_inserting;
use super::database::{Claim, Reason};
use super::names::slot_name;
use super::slot::Slot;
use super::state::{State, Steps};
use super::task::Stage;

/// The steps of a slot that has fetched such a row. As long as no other handler is deployed, it gets its old key.
pub(super) fn readmit(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (scenario, state) = (steps.world, steps.state);
    for now in iter::once(message).chain(scenario.message(message).becomes) {
        let (key, who) = (scenario.key(now), slot_name(slot));
        let found = state.claims[key];
        // An uncommitted insert of another transaction is waited for.
        if found.is_none() && is_inserting(scenario, state, now) {
            continue;
        }
        let take_over = |after: &mut State| {
            after.rows[usize::from(message)] = None;
            after.facts[usize::from(message)].moved |= now != message;
            match found {
                Some(claim) if claim.message == now => {}
                Some(_) => after.insert(now, 0, Some(Reason::Conflict)),
                None => {
                    after.claims[key] = Some(Claim::undated(now));
                    after.insert(now, 0, None);
                }
            }
        };
        steps.step(who, "finds the key of _ anew, and takes it over in place of its row", message, |after| {
            take_over(after);
            after.end(slot);
        });
        if state.left.losses > 0 {
            let what = "finds the key of _ anew, takes it over in place of its row, and gets no answer";
            steps.setback(who, what, message, |after| {
                take_over(after);
                after.left.losses -= 1;
                after.advance(slot, Stage::Broke);
            });
        }
    }
}
