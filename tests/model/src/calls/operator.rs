//! An operator replays a row whose attempts have ended, resolves one whose call is in doubt, restores a backup, and rewinds a
//! stream.

use super::defect::Defect;
use super::state::{Death, Holder, KEYS, Row, Stage, Steps, WORKERS};

/// What an operator does.
pub(super) fn steps(steps: &mut Steps<'_>) {
    replay(steps);
    resolve(steps);
    back_up(steps);
    rewind(steps);
}

/// A replayed row keeps the end of its lease, since its request may be on its way.
fn replay(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|row| row.dead == Some(Death::Exhausted)) else { return };
    if state.left.replays == 0 {
        return;
    }
    let holder = if world.has(Defect::ReplayEndsTheLease) { Holder::Nobody } else { row.holder };
    steps.setback("an operator", "replays the row", 0, |after| {
        after.left.replays -= 1;
        after.row = Some(Row { dead: None, holder, ..row });
    });
}

/// Looks at the provider once no request can be on its way, and resolves a dead row: by the answer, or by another call under
/// the key that follows. Or discards it.
fn resolve(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    let Some(row) = state.row.filter(|row| row.dead.is_some() && state.left.resolutions > 0) else { return };
    let next = Some(row.key + 1).filter(|key| usize::from(*key) < KEYS);
    let mut change = |what, changed: Option<Row>| {
        steps.setback("an operator", what, 0, |after| {
            after.left.resolutions -= 1;
            after.row = changed;
        });
    };
    change("discards the row", None);
    if state.flying.iter().any(Option::is_some) && !world.has(Defect::ResolvesTooEarly) {
        return;
    }
    let resolved = Row { dead: None, ..row };
    if state.keys[usize::from(row.key)].charged {
        let answered = Row { called: true, answer: true, holder: Holder::Nobody, ..resolved };
        change("resolves the row by the answer", Some(answered));
    } else if let Some(key) = next {
        change("resolves the row by another call", Some(Row { key, called: false, ..resolved }));
    }
}

/// The database is as it was at the backup. The provider is not. All workers are stopped for it, for longer than a request
/// takes. Of a message that was not called, a restore beyond the life of its key needs a person: the guide says so.
fn back_up(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    if state.left.restores == 0 {
        return;
    }
    match (state.saved, state.row) {
        (None, Some(row)) if row.called || world.keys_last => {
            steps.setback("an operator", "backs the database up", 0, |after| {
                after.saved = Some(Row { holder: Holder::Nobody, ..row });
            });
        }
        (Some(saved), _) if state.flying.iter().all(Option::is_none) => {
            steps.setback("an operator", "restores the backup", 0, |after| {
                after.left.restores -= 1;
                after.saved = None;
                after.row = Some(saved);
                after.completed = 0;
                after.workers = [Stage::Idle; WORKERS];
            });
        }
        _ => {}
    }
}

/// The database is as it was before the message came, and the stream is rewound: the message is stored again, with the key that
/// follows from its position.
fn rewind(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    if state.left.rewinds == 0 || state.flying.iter().any(Option::is_some) {
        return;
    }
    let first = if world.has(Defect::FirstKeyRandom) { state.unused_key() } else { Some(0) };
    let Some(key) = first else { return };
    steps.setback("an operator", "restores a backup from before the message, which comes again", 0, |after| {
        after.left.rewinds -= 1;
        after.row = Some(Row::stored(key));
        after.completed = 0;
        after.workers = [Stage::Idle; WORKERS];
    });
}
