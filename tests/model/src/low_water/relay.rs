//! The relay reads from its low-water mark, draws marks, and raises the low-water mark.

use super::Steps;
use super::defect::Defect;
use super::state::{Phase, Snapshot, State, WRITERS};

/// The steps of the relay.
pub(super) fn steps(steps: &mut Steps<'_>) {
    let state = steps.state;
    match state.reading {
        Some(snapshot) => end(steps, &snapshot),
        None => steps.step("the relay", "begins a read", 0, |after| {
            let open = std::array::from_fn(|writer| after.open(writer).is_some_and(|number| number <= after.ended));
            let committed = std::array::from_fn(|writer| after.writers[writer].phase == Phase::Committed);
            after.reading = Some(Snapshot { from: after.low_water, committed, open, end: after.ended + 1 });
        }),
    }
    // Without anything new above the low-water mark, no mark is drawn.
    if state.mark.is_none() && state.next_id - 1 > state.low_water {
        let raised = steps.world.has(Defect::RaisedByTheMark);
        steps.step("the relay", "draws a mark", 0, |after| {
            let (high, number) = (after.next_id - 1, after.number());
            after.ended = after.ended.max(number);
            match raised {
                true => after.low_water = high,
                false => after.mark = Some((high, number)),
            }
        });
    }
}

/// The read ends: what it has found is published, or dropped, and the low-water mark may rise.
fn end(steps: &mut Steps<'_>, snapshot: &Snapshot) {
    let (world, state) = (steps.world, steps.state);
    let has_ended = |writer: usize| {
        let below = state.writers[writer].number < snapshot.end && !snapshot.open[writer];
        state.remembered[writer].filter(|_| below && !world.has(Defect::EndedNotSeen))
    };
    let back = (0..WRITERS).filter_map(has_ended).min();
    let (rows, covered) = found(steps, snapshot);
    if let Some(back) = back {
        let (keeps, any) = (world.has(Defect::EndedReadKept), world.has(Defect::ReachedByAnyMark));
        return steps.step("the relay", "drops a read, since a remembered transaction has ended", 0, |after| {
            after.reading = None;
            after.low_water = after.low_water.min(back);
            // All others below that mark had ended when the low-water mark had reached it.
            after.mark = Some(if any { (after.next_id - 1, after.reached.1) } else { after.reached });
            (0..WRITERS)
                .filter(|writer| has_ended(*writer).is_some())
                .for_each(|writer| after.remembered[writer] = None);
            if keeps {
                publish(after, &rows);
            }
        });
    }
    let Some((high, number)) =
        state.mark.filter(|(_, number)| snapshot.end > *number || world.has(Defect::OldSnapshot))
    else {
        return steps.step("the relay", "ends a read", 0, |after| {
            after.reading = None;
            publish(after, &rows);
        });
    };
    let is_below = |writer: usize| snapshot.open[writer] && state.writers[writer].number < number;
    let open: Vec<usize> =
        (0..WRITERS).filter(|writer| is_below(*writer) && state.remembered[*writer].is_none()).collect();
    if !open.is_empty() {
        steps.step("the relay", "ends a read, and waits for open transactions", 0, |after| {
            after.reading = None;
            publish(after, &rows);
        });
    }
    let (forgets, behind) = (world.has(Defect::OpenForgotten), world.has(Defect::LowWaterFromBehind));
    steps.step("the relay", "ends a read, and raises its low-water mark", 0, |after| {
        after.reading = None;
        publish(after, &rows);
        let raised = after.low_water.max(high.min(covered));
        for writer in open.iter().copied().filter(|_| !forgets) {
            after.remembered[writer] = Some(if behind { raised } else { after.low_water });
        }
        after.low_water = raised;
        after.reached = after.reached.max((raised, number));
        if covered >= high {
            after.mark = None;
        }
    });
}

/// The messages that the read brings, and the id up to which it has covered all: its limit is one message.
fn found(steps: &Steps<'_>, snapshot: &Snapshot) -> (Vec<usize>, u8) {
    let id = |writer: &usize| steps.state.writers[*writer].id;
    let is_new = |writer: &usize| {
        // A failover may have taken it since.
        snapshot.committed[*writer]
            && steps.state.writers[*writer].phase == Phase::Committed
            && id(writer) > snapshot.from
    };
    let mut rows: Vec<usize> = (0..WRITERS).filter(is_new).collect();
    rows.sort_by_key(id);
    let is_cut = steps.world.limited && rows.len() > 1;
    rows.truncate(if is_cut { 1 } else { WRITERS });
    let last = rows.last().map_or(u8::MAX, id);
    (rows, if is_cut && !steps.world.has(Defect::CutReadCoversAll) { last } else { u8::MAX })
}

fn publish(after: &mut State, rows: &[usize]) {
    for writer in rows {
        after.writers[*writer].phase = Phase::Published;
    }
}
