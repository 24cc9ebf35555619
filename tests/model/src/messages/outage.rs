//! A database is away: nothing is written there, its transactions are gone, and work that waits for it holds no lock, so that
//! workers of another database in the same process need not wait for the end of the outage. A handler that still runs
//! keeps the lock of its work until it returns.

use super::crash;
use super::defect::Defect;
use super::names::{WORLD, slot_name};
use super::scenario::{Handler, Scenario};
use super::slot::Slot;
use super::state::Steps;
use super::task::{Lock, Stage, Task, Work};

/// An outage begins or ends.
pub(super) fn changes(steps: &mut Steps<'_>) {
    let (scenario, state) = (steps.world, steps.state);
    if state.away.is_some() {
        return steps.step(WORLD, "the database is back", 0, |after| after.away = None);
    }
    if state.left.outages == 0 {
        return;
    }
    let databases = scenario.messages.iter().map(|message| message.database + 1).max().unwrap_or_default();
    for database in 0..databases {
        steps.setback(WORLD, "the database of some messages is away", 0, |after| {
            after.left.outages -= 1;
            after.away = Some(database);
            for task in after.tasks.iter_mut().flatten().filter(|task| database_of(scenario, **task) == Some(database))
            {
                let runs = task.stage == Stage::Running;
                if runs {
                    task.stage = Stage::Cut;
                }
                if task.lock == Lock::Held && (!runs || scenario.has(Defect::OutageEndsTheLockOfHandlers)) {
                    task.lock = Lock::Lost;
                }
            }
        });
    }
}

/// Whether the database of a task is away.
pub(super) fn is_away(steps: &Steps<'_>, task: Task) -> bool {
    steps.state.away.is_some() && database_of(steps.world, task) == steps.state.away
}

/// What goes on without the database: a handler.
pub(super) fn steps(steps: &mut Steps<'_>, slot: Slot, task: Task) {
    if task.stage != Stage::Cut {
        return;
    }
    match task.work {
        Work::Delivery(delivery) => {
            let message = steps.world.message_of(delivery);
            cut(steps, slot, Stage::Received { stores: true, pruned: None }, message);
        }
        Work::Row(message, _) => cut(steps, slot, Stage::Broke, message),
        Work::Turn(_) => {}
    }
}

/// A handler whose transaction was lost in an outage ends its process, or it ends.
pub(super) fn cut(steps: &mut Steps<'_>, slot: Slot, next: Stage, message: u8) {
    if steps.world.message(message).handler == Handler::Kills {
        return crash::by_handler(steps, slot, message);
    }
    steps.step(slot_name(slot), "finds that the outage has ended its run of _", message, |after| {
        after.advance(slot, next);
        let is_away = after.away.is_some();
        if let Some(task) = &mut after.tasks[usize::from(slot)]
            && is_away
            && task.lock == Lock::Held
        {
            task.lock = Lock::Lost;
        }
    });
}

fn database_of(scenario: &Scenario, task: Task) -> Option<u8> {
    match task.work {
        Work::Delivery(delivery) => Some(scenario.message(scenario.message_of(delivery)).database),
        Work::Row(message, _) => Some(scenario.message(message).database),
        // It waits for the locks of its process, and gives that up by itself.
        Work::Turn(_) => None,
    }
}
