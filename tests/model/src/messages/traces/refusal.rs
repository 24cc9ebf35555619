//! The report of a trace that is no path of the model.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::at::At;
use super::lease;
use super::moves::slot_of;
use super::seen::Seen;
use super::table;
use super::world::World;
use crate::messages::slot::worker;
use crate::search::Model;
use crate::step::Step;

/// Says which line is not possible, behind which one, and what would have been, at the farthest places.
pub(super) fn refusal(world: &World, farthest: &[At]) -> String {
    let stops: BTreeSet<_> = farthest.iter().filter_map(|at| at.due(world)).collect();
    let mut text = format!("the lines of {} are no path of the model.\n", world.name);
    let mut tell = |what: &str, line: usize| {
        let of = &world.lines[line];
        let _ = writeln!(text, "{what} record {}: {}", of.number, of.text);
    };
    for stop in &stops {
        tell("Not possible:", *stop);
    }
    if let Some(at) = farthest.first() {
        let done = (0..world.lines.len()).filter(|line| at.is_done(*line) && world.lines[*line].end.is_some());
        match done.max_by_key(|line| world.lines[*line].end) {
            Some(last) => tell("Behind", last),
            None => text.push_str("It is the first one.\n"),
        }
    }
    let due = farthest.iter().filter_map(|at| Some((at, at.due(world)?)));
    if due.into_iter().any(|(at, line)| is_leased(world, at, line)) {
        text.push_str("The lease of another holder of the row was not over.\n");
    }
    text.push_str("Possible would have been:\n");
    for step in possible(world, farthest) {
        let _ = writeln!(text, "  {step}");
    }
    text
}

/// Whether a line takes a row during a lease.
fn is_leased(world: &World, at: &At, line: usize) -> bool {
    let messages = 0..u8::try_from(world.messages.len()).unwrap_or_default();
    messages.into_iter().any(|message| {
        world.message_of[line].is_none_or(|of| of == message)
            && lease::going_on(at, &world.lines[line], message).is_some()
    })
}

/// The steps that are lines, at these places.
fn possible(world: &World, farthest: &[At]) -> BTreeSet<String> {
    let mut steps = BTreeSet::new();
    for at in farthest {
        world.scenario.steps(&at.state, &mut |step, _| {
            let mut lines = table::shown(step.what).unwrap_or_default().iter().filter_map(|shown| shown.line());
            // A process may always end.
            if lines.any(|(seen, _)| seen != Seen::Died) {
                steps.insert(told(world, at, step));
            }
        });
    }
    steps
}

/// A step in words, with the names of the trace.
fn told(world: &World, at: &At, step: Step) -> String {
    let process = slot_of(step).map(|slot| at.workers[worker(slot)]);
    let who = match process {
        Some(Some(process)) => format!("{}: ", world.processes[process]),
        Some(None) => "a process: ".to_owned(),
        None => String::new(),
    };
    let message = world.messages.get(usize::from(step.message)).map_or("?", |(_, name)| name.as_str());
    format!("{who}{}", step.what.replace('_', message))
}
