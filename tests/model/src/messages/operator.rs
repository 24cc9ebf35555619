//! An operator's hand: replay and discard.

use super::database::{Claim, Holder, Reason, Row};
use super::defect::Defect;
use super::names::WORLD;
use super::state::{State, Steps};

/// The steps of an operator.
pub(super) fn steps(steps: &mut Steps<'_>) {
    if steps.state.left.orders == 0 {
        return;
    }
    for (message, row) in (0..).zip(steps.state.rows) {
        match row.and_then(|row| row.dead) {
            Some(reason) => dead(steps, message, reason),
            None if row.is_some() && steps.world.has(Defect::DiscardDatesWithoutDelete) => {
                let key = steps.world.key(message);
                steps.setback(WORLD, "an operator discards _, which is scheduled", message, |after| {
                    after.left.orders -= 1;
                    date(after, key);
                });
            }
            None => {}
        }
    }
}

fn dead(steps: &mut Steps<'_>, message: u8, reason: Reason) {
    let key = steps.world.key(message);
    // A conflict is replayed under another key only, and a message that may have been processed by force only.
    let unforced = match reason {
        Reason::Conflict => steps.world.has(Defect::ConflictReplayedUnderItsKey),
        Reason::TooOld | Reason::Committed => false,
        Reason::Failed | Reason::Crashed | Reason::Broke => true,
    };
    if unforced {
        steps.setback(WORLD, "an operator replays _", message, |after| {
            after.left.orders -= 1;
            let breaks = if matches!(reason, Reason::Crashed | Reason::Broke) { 2 } else { 0 };
            after.change(message, |_| Row { dead: None, holder: Holder::Nobody, starts: 0, breaks, attempts: 0 });
            after.facts[usize::from(message)].open = 0;
        });
    }
    steps.setback(WORLD, "an operator discards _", message, |after| {
        after.left.orders -= 1;
        after.rows[usize::from(message)] = None;
        after.facts[usize::from(message)].discarded = true;
        // The row of a conflict owns no claim.
        if reason != Reason::Conflict {
            date(after, key);
        }
    });
}

/// Dates the claim of a key where it has no date.
fn date(after: &mut State, key: usize) {
    if let Some(claim) = &mut after.claims[key] {
        *claim = Claim::dated(claim.message, claim.date.unwrap_or(after.clock));
    }
}
