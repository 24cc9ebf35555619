//! An inbox row: fetch, run, record.

use super::crash;
use super::database::{Claim, Holder, Reason, Row};
use super::defect::Defect;
use super::handler::{Act, acts, effect, gives_up, max_breaks};
use super::isolation;
use super::keyless;
use super::names::{AGAIN, slot_name};
use super::outage;
use super::scenario::Scenario;
use super::slot::Slot;
use super::state::{State, Steps};
use super::storing::committed_early;
use super::task::{Isolation, Lock, Stage, Task, Work};

/// Fetches a row that is due: one committed statement counts its start and sets token and lease. The client has made the
/// token before, so that a fetch whose answer is lost is found by it, and begun. The lock comes first, shared.
pub(super) fn fetch(steps: &mut Steps<'_>, slot: Slot) {
    let (scenario, state) = (steps.world, steps.state);
    if !isolation::may_fetch(scenario, state, slot) {
        return;
    }
    for (message, row) in due(scenario, state).filter(|(_, row)| is_ordinary(scenario, row)) {
        let place = usize::from(message);
        let counted = row.starts + u8::from(!scenario.has(Defect::StartsNotCounted));
        steps.step(slot_name(slot), "fetches the row of _", message, |after| {
            after.rows[place] = Some(Row { starts: counted, holder: Holder::Leased(slot), ..row });
            after.facts[place].open += 1;
            let work = Work::Row(message, Isolation::Nothing);
            after.tasks[usize::from(slot)] = Some(Task { work, stage: Stage::Fetched, lock: Lock::Held });
        });
        if scenario.has(Defect::UnansweredFetchForgotten) && state.left.losses > 0 {
            steps.setback(slot_name(slot), "fetches the row of _, and gets no answer", message, |after| {
                after.rows[place] = Some(Row { starts: counted, holder: Holder::Gone, ..row });
                after.left.losses -= 1;
            });
        }
    }
}

/// The steps of a slot that works on a row whose start is counted.
pub(super) fn steps(steps: &mut Steps<'_>, slot: Slot, message: u8, stage: Stage) {
    let key = steps.world.key(message);
    match stage {
        Stage::Fetched => begin(steps, slot, message),
        Stage::Running => run(steps, slot, message),
        Stage::Failed => {
            let attempts = steps.state.rows[usize::from(message)].map_or(0, |row| row.attempts);
            for dead in gives_up(steps.world.message(message).handler, attempts + 1) {
                record(steps, slot, message, if *dead { given_up } else { failed });
            }
        }
        Stage::Broke => record(steps, slot, message, broke),
        Stage::Settling => steps.step(slot_name(slot), "deletes the row of _, and dates its claim", message, |after| {
            finish(after, key, message);
            after.end(slot);
        }),
        Stage::CommittedEarly => committed_early(steps, slot, message, None),
        Stage::Cut => outage::cut(steps, slot, Stage::Broke, message),
        Stage::Received { .. } | Stage::Waiting | Stage::WaitsForRow => {}
    }
}

/// Begins the transaction: deletes the row by its token, and dates the claim. Without the token, the lease was lost.
fn begin(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let scenario = steps.world;
    if steps.state.has_token(message, slot) {
        let is_keyless = steps.state.rows[usize::from(message)].is_some_and(|row| row.keyless);
        if isolation::holds(steps, slot) && is_keyless {
            keyless::readmit(steps, slot, message);
        } else if isolation::holds(steps, slot) {
            steps.step(
                slot_name(slot),
                "deletes the row of _ in a transaction, and runs its handler",
                message,
                |after| {
                    if scenario.has(Defect::RowDeletedBeforeItsRun) {
                        finish(after, scenario.key(message), message);
                    }
                    after.advance(slot, Stage::Running);
                },
            );
        }
        isolation::lock_again(steps, slot, message);
        return steps.setback(slot_name(slot), "snoozes the row of _, not run", message, |after| {
            after.change(message, |row| Row { holder: Holder::Nobody, ..refund(row) });
            close(after, message);
            after.end(slot);
        });
    }
    give_start_back(steps, slot, message);
}

/// A worker that has lost the lease refunds its start, and leaves the token of the one that has the row now. While
/// that one runs it, the row is locked. A refund that fails, or that has no answer, is not repeated, because it may
/// have been done: then the start stays counted.
fn give_start_back(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (scenario, who, loses) = (steps.world, slot_name(slot), steps.state.left.losses > 0);
    let forgets = scenario.has(Defect::LostStartNotRefunded);
    if loses || forgets {
        steps.setback(who, "finds that it has lost the lease of _, and cannot refund its start", message, |after| {
            after.left.losses -= u8::from(!forgets);
            after.end(slot);
        });
    }
    if steps.state.is_locked(message) {
        return;
    }
    let refunded = |after: &mut State| {
        after.change(message, refund);
        close(after, message);
    };
    steps.step(who, "finds that it has lost the lease of _, and refunds its start", message, |after| {
        refunded(after);
        after.end(slot);
    });
    if loses && scenario.has(Defect::UnansweredRefundRepeated) {
        let what = "finds that it has lost the lease of _, refunds its start, and gets no answer";
        steps.setback(who, what, message, |after| {
            refunded(after);
            after.left.losses -= 1;
        });
    }
}

/// The handler, the guard and the commit.
fn run(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (scenario, place) = (steps.world, usize::from(message));
    for act in acts(scenario.message(message).handler, steps.state, message) {
        match act {
            Act::Kills => crash::by_handler(steps, slot, message),
            Act::Breaks => steps.step(slot_name(slot), "the handler of _ breaks its connection", message, |after| {
                after.facts[place].breaks += 1;
                after.advance(slot, Stage::Broke);
            }),
            Act::RunsCommit => runs_commit(steps, slot, message),
            Act::Fails => steps.step(slot_name(slot), "the handler of _ fails, and is rolled back", message, |after| {
                after.facts[place].failures += 1;
                after.advance(slot, Stage::Failed);
            }),
            Act::Succeeds => commit(steps, slot, message),
        }
    }
    if steps.state.left.again > 0 {
        steps.setback(slot_name(slot), AGAIN, message, |after| {
            after.left.again -= 1;
            after.advance(slot, Stage::Fetched);
        });
    }
}

/// The handler commits the transaction by itself: the delete of the row and the date of the claim are committed with it.
fn runs_commit(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (key, unasked) = (steps.world.key(message), steps.world.has(Defect::OutcomeNotAsked));
    steps.step(slot_name(slot), "the handler of _ runs COMMIT, and loses its connection", message, |after| {
        effect(after, message);
        finish(after, key, message);
        after.claims[key] = Some(Claim { early: true, ..Claim::dated(message, after.clock) });
        after.facts[usize::from(message)].failures += 1;
        after.advance(slot, if unasked { Stage::Broke } else { Stage::CommittedEarly });
    });
}

/// The effect, the date of the claim and the delete of the row, in one commit. Without an answer, the run counts as one
/// that lost its connection: if it was committed, there is no row to record that in.
fn commit(steps: &mut Steps<'_>, slot: Slot, message: u8) {
    let (scenario, key) = (steps.world, steps.world.key(message));
    if scenario.has(Defect::RowDeletedAfterItsRun) {
        return steps.step(slot_name(slot), "commits the effect of _ alone", message, |after| {
            effect(after, message);
            after.advance(slot, Stage::Settling);
        });
    }
    let commit = |after: &mut State| {
        effect(after, message);
        finish(after, key, message);
    };
    steps.step(slot_name(slot), "commits the effect of _ and the delete of its row", message, |after| {
        commit(after);
        after.end(slot);
    });
    if steps.state.left.losses == 0 {
        return;
    }
    let who = slot_name(slot);
    steps.setback(who, "commits the effect of _ and the delete of its row, and gets no answer", message, |after| {
        commit(after);
        after.left.losses -= 1;
        after.advance(slot, Stage::Broke);
    });
    steps.setback(who, "loses its connection in the run of _", message, |after| {
        after.left.losses -= 1;
        after.advance(slot, Stage::Broke);
    });
}

/// Records how a run ended, by its token: `result` changes the row, and takes the token from it. A repeat after a lost
/// answer therefore changes nothing.
fn record(steps: &mut Steps<'_>, slot: Slot, message: u8, result: fn(&Scenario, &mut State, u8)) {
    let (scenario, state) = (steps.world, steps.state);
    let unfenced = scenario.has(Defect::RecordWithoutToken)
        && state.rows[usize::from(message)].is_some()
        && !state.is_locked(message);
    if !state.has_token(message, slot) && !unfenced {
        return steps.step(slot_name(slot), "finds that the row of _ no longer has its token", message, |after| {
            after.end(slot)
        });
    }
    steps.step(slot_name(slot), "records how its run of _ ended", message, |after| {
        result(scenario, after, message);
        after.end(slot);
    });
    if state.left.losses > 0 {
        steps.setback(slot_name(slot), "records how its run of _ ended, and gets no answer", message, |after| {
            result(scenario, after, message);
            after.left.losses -= 1;
        });
    }
}

/// A failure: one more attempt. The starts before it did not end a process, and count no longer.
fn failed(_: &Scenario, after: &mut State, message: u8) {
    fail(after, message, None);
}

/// The last failure.
fn given_up(_: &Scenario, after: &mut State, message: u8) {
    fail(after, message, Some(Reason::Failed));
}

fn fail(after: &mut State, message: u8, dead: Option<Reason>) {
    after.change(message, |row| Row { keyless: row.keyless, ..Row::new(row.attempts + 1, dead) });
    after.facts[usize::from(message)].open = 0;
}

/// A lost connection: no attempt, and no start, since the process lives. It is counted by itself.
fn broke(scenario: &Scenario, after: &mut State, message: u8) {
    let (charges, uncounted) = (scenario.has(Defect::BreakKeepsStart), scenario.has(Defect::BreaksNotCounted));
    let limit = max_breaks(scenario.message(message).handler);
    after.change(message, |row| {
        let breaks = row.breaks + u8::from(!uncounted);
        let dead = (breaks >= limit).then_some(Reason::Broke);
        Row { dead, breaks, holder: Holder::Nobody, ..if charges { row } else { refund(row) } }
    });
    if !charges {
        close(after, message);
    }
}

/// The row without one of its starts.
fn refund(row: Row) -> Row {
    Row { starts: row.starts.saturating_sub(1), ..row }
}

/// The message is processed: its row is deleted, and its claim dated.
fn finish(after: &mut State, key: usize, message: u8) {
    after.rows[usize::from(message)] = None;
    after.claims[key] = Some(Claim::dated(message, after.clock));
}

/// One run of the row has ended with its process alive.
fn close(after: &mut State, message: u8) {
    let open = &mut after.facts[usize::from(message)].open;
    *open = open.saturating_sub(1);
}

/// The scheduled rows that nobody has a lease of, and that no transaction locks.
pub(super) fn due(scenario: &Scenario, state: &State) -> impl Iterator<Item = (u8, Row)> {
    (0..).zip(state.rows).filter_map(|(message, row)| Some((message, row?))).filter(|(message, row)| {
        let is_away = state.away == Some(scenario.message(*message).database);
        !is_away && row.dead.is_none() && !matches!(row.holder, Holder::Leased(_)) && !state.is_locked(*message)
    })
}

/// Whether a row may run concurrently with others.
pub(super) fn is_ordinary(scenario: &Scenario, row: &Row) -> bool {
    row.starts <= u8::from(scenario.has(Defect::OneStartIsOrdinary)) && row.breaks <= 1
}
