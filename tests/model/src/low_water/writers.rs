//! Transactions draw a number, then an id, and end in any order. Those of one key hold a common lock from before the id on.

use super::defect::Defect;
use super::state::{Phase, WRITERS};
use super::{KEYS, Steps};

/// The steps of one transaction.
pub(super) fn steps(steps: &mut Steps<'_>, writer: usize) {
    let (state, name) = (steps.state, u8::try_from(writer).unwrap_or_default());
    let id_first = steps.world.has(Defect::IdBeforeNumber);
    match state.writers[writer].phase {
        Phase::Idle if id_first && is_unlocked(steps, writer) => {
            steps.step("", "a transaction draws the id of _", name, |after| {
                after.writers[writer].id = after.id();
                after.writers[writer].phase = Phase::Begun;
            });
        }
        Phase::Idle if !id_first => steps.step("", "a transaction begins, which will stage _", name, |after| {
            after.writers[writer].number = after.number();
            after.writers[writer].phase = Phase::Begun;
        }),
        Phase::Begun if id_first => steps.step("", "the transaction gets its number, and stages _", name, |after| {
            after.writers[writer].number = after.number();
            after.writers[writer].phase = Phase::Staged;
        }),
        Phase::Begun if is_unlocked(steps, writer) => steps.step("", "a transaction stages _", name, |after| {
            after.writers[writer].id = after.id();
            after.writers[writer].phase = Phase::Staged;
        }),
        Phase::Staged => {
            steps.step("", "the transaction of _ is committed", name, |after| after.end(writer, Phase::Committed));
            if state.rollbacks > 0 {
                steps.setback("", "the transaction of _ is rolled back", name, |after| {
                    after.rollbacks -= 1;
                    after.end(writer, Phase::Gone);
                });
            }
        }
        _ => {}
    }
}

/// Whether no other transaction of its key holds their lock.
fn is_unlocked(steps: &Steps<'_>, writer: usize) -> bool {
    let holds = |other: usize| {
        let (Phase::Begun | Phase::Staged) = steps.state.writers[other].phase else { return false };
        steps.state.writers[other].id > 0
    };
    !(0..WRITERS).any(|other| other != writer && KEYS[other] == KEYS[writer] && holds(other))
}

/// The server fails over to one that has lost the last commit. Open transactions are gone, and its id is given again. A
/// statement of the relay fails.
pub(super) fn failover(steps: &mut Steps<'_>) {
    let state = steps.state;
    let last = (0..WRITERS).max_by_key(|writer| state.writers[*writer].id).filter(|writer| {
        let (Phase::Committed | Phase::Published) = state.writers[*writer].phase else { return false };
        state.writers[*writer].id + 1 == state.next_id
    });
    let Some(last) = last.filter(|_| state.failovers > 0) else { return };
    let keeps = steps.world.has(Defect::FailureKeepsLowWater);
    steps.setback("", "the server fails over, and has lost _", u8::try_from(last).unwrap_or_default(), |after| {
        after.failovers -= 1;
        after.next_id -= 1;
        for writer in (0..WRITERS).filter(|writer| state.open(*writer).is_some()) {
            after.writers[writer].phase = Phase::Gone;
        }
        after.writers[last].phase = Phase::Gone;
        after.reading = None;
        if !keeps {
            (after.low_water, after.mark, after.reached, after.remembered) = (0, None, (0, 0), [None; WRITERS]);
        }
    });
}
