//! An operator's hand: replay, discard and forget.

use super::database::{Claim, Reason, Row};
use super::defect::Defect;
use super::names::WORLD;
use super::state::{State, Steps};

/// The steps of an operator.
pub(super) fn steps(steps: &mut Steps<'_>) {
    forget(steps);
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
            after.change(message, |row| Row { breaks, keyless: row.keyless, ..Row::new(0, None) });
            after.facts[usize::from(message)].open = 0;
        });
    }
    if reason == Reason::Conflict && steps.world.message(message).becomes.is_some() {
        let keyless = !steps.world.has(Defect::NewKeysKeepTheOldKey);
        steps.setback(WORLD, "an operator sends the conflict _ back without its key", message, |after| {
            after.left.orders -= 1;
            after.change(message, |_| Row { keyless, ..Row::new(0, None) });
            after.facts[usize::from(message)].open = 0;
        });
    }
    let owns_claim = steps.state.rows[usize::from(message)].is_some_and(Row::owns_claim);
    steps.setback(WORLD, "an operator discards _", message, |after| {
        after.left.orders -= 1;
        after.rows[usize::from(message)] = None;
        after.facts[usize::from(message)].discarded = true;
        if owns_claim {
            date(after, key);
        }
    });
}

/// Deletes a claim: only a dated one, and only if its key has no inbox row, that of a conflict included. A copy that comes later runs
/// again, which is what the operator wants.
fn forget(steps: &mut Steps<'_>) {
    if steps.state.left.forgets == 0 {
        return;
    }
    let (world, state) = (steps.world, steps.state);
    for (key, claim) in state.claims.iter().enumerate() {
        let Some(Claim { message, date: Some(_), .. }) = *claim else { continue };
        let mut rows = (0..).zip(state.rows).filter_map(|(of, row): (u8, _)| row.map(|_| of));
        if world.has(Defect::ForgetBesideConflicts) || !rows.any(|of| world.key(of) == key) {
            steps.setback(WORLD, "an operator forgets the claim of _", message, |after| {
                after.left.forgets -= 1;
                after.claims[key] = None;
                let facts = &mut after.facts[usize::from(message)];
                facts.forgotten = facts.effects;
            });
        }
    }
}

/// Dates the claim of a key where it has no date.
fn date(after: &mut State, key: usize) {
    if let Some(claim) = &mut after.claims[key] {
        *claim = Claim::dated(claim.message, claim.date.unwrap_or(after.clock));
    }
}
