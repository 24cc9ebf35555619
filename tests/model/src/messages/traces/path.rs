//! The lines of a key, or of two, as a path of the model of messages: each next place is behind one step of the model, which a
//! line says or which writes nothing.

use super::at::At;
use super::table::{PAUSED, RECEIVES, TAKEN_BACK};
use super::world::World;
use super::{lease, table};
use crate::messages::names::{WORKER_NAMES, slot_name};
use crate::messages::slot::{ALL, Slot, worker};
use crate::messages::state::{DELIVERIES, Place, State};
use crate::messages::task::{Stage, Work};
use crate::search::Model;
use crate::step::Step;
use crate::traces::done::Done;
use crate::traces::lines::Lines;
use crate::traces::path::Path;
use crate::traces::shown::Shown;
use crate::traces::trace_step::TraceStep;

impl Path for World {
    type At = At;

    fn lines(&self) -> &Lines {
        &self.lines
    }

    fn first(&self) -> At {
        At::first(self)
    }

    fn done<'a>(&self, at: &'a At) -> &'a Done {
        &at.done
    }

    fn moves(&self, at: &At, reach: &mut dyn FnMut(At)) {
        moves(self, at, reach);
    }

    fn possible(&self, at: &At, report: &mut dyn FnMut(String)) {
        self.scenario.steps(&at.state, &mut |step, _| {
            let mut lines = table::shown(step.what).unwrap_or_default().iter().filter_map(|shown| shown.line());
            // A process may always end.
            if lines.any(|(seen, _)| seen != TraceStep::Died) {
                report(described(self, at, step));
            }
        });
    }

    fn hint(&self, at: &At, line: usize) -> Option<&'static str> {
        let mut messages = 0..u8::try_from(self.messages.len()).unwrap_or_default();
        let is_leased = messages.any(|message| {
            self.message_of[line].is_none_or(|of| of == message)
                && lease::going_on(at, &self.lines.all[line], message).is_some()
        });
        is_leased.then_some("The lease of another holder of the row was not over.")
    }
}

/// A step in words, with the names of the trace.
fn described(world: &World, at: &At, step: Step) -> String {
    let process = slot_of(step).map(|slot| at.workers[worker(slot)]);
    let who = match process {
        Some(Some(process)) => format!("{}: ", world.lines.processes[process]),
        Some(None) => "a process: ".to_owned(),
        None => String::new(),
    };
    let message = world.messages.get(usize::from(step.message)).map_or("?", |(_, name)| name.as_str());
    format!("{who}{}", step.what.replace('_', message))
}

/// Calls `reach` with each next place.
fn moves(world: &World, at: &At, reach: &mut dyn FnMut(At)) {
    if let Some(next) = received(world, at) {
        return reach(next);
    }
    for (line, of) in at.open(world) {
        let process = world.lines.process_of[line];
        match of.step {
            TraceStep::Left if at.agrees(world, line) => reach(at.clone().behind(line)),
            TraceStep::Gone => gone(world, at, line).into_iter().for_each(&mut *reach),
            // A process without work needs no step of the model.
            TraceStep::Died if at.knows(world, process) && !works(at, process) => {
                reach(at.clone().bury(world, process).behind(line))
            }
            _ => {}
        }
    }
    world.scenario.steps(&at.state, &mut |step, after| {
        for shown in table::shown(step.what).unwrap_or_default() {
            match shown {
                Shown::Free => free(world, at, step, &after).into_iter().for_each(&mut *reach),
                shown => lines(world, at, step, &after, *shown, reach),
            }
        }
    });
}

/// A delivery that reached a worker is at the broker of the model from now on, as soon as there is room for it. This takes
/// nothing from the other steps, so it comes first.
fn received(world: &World, at: &At) -> Option<At> {
    let (line, of) = at.open(world).find(|(_, of)| of.step == TraceStep::Received)?;
    let delivery = at.free(world, world.message_of[line]?)?;
    let mut next = at.clone();
    next.state.deliveries[delivery] = Place::Queued(of.values.stores);
    next.held[delivery] = Some(line);
    Some(next.behind(line))
}

/// A delivery that is gone makes room for another one. One that the worker of the model has is taken back before.
fn gone(world: &World, at: &At, line: usize) -> Option<At> {
    let mut next = at.clone();
    let is = |of: Option<usize>| of.is_some_and(|of| is_same(world, line, of));
    if let Some(delivery) = at.held.iter().position(|of| is(*of)) {
        if matches!(at.state.deliveries[delivery], Place::Held(_)) {
            return None;
        }
        next.held[delivery] = None;
        next.state.deliveries[delivery] = Place::Settled;
    }
    Some(next.behind(line))
}

/// Whether the worker of a process works on something.
fn works(at: &At, process: usize) -> bool {
    at.state.busy().any(|(slot, _)| at.workers[worker(slot)] == Some(process))
}

/// The place behind a step that writes nothing, unless the trace speaks against it.
fn free(world: &World, at: &At, step: Step, after: &State) -> Option<At> {
    let mut next = at.with(after.clone());
    if RECEIVES.contains(&step.what) {
        let delivery = changed(at, after)?;
        let process = world.lines.process_of[at.held[delivery]?];
        next.workers = at.bound(world, worker(slot_of(step)?), process)?;
    } else if step.what == TAKEN_BACK {
        let delivery = changed(at, after)?;
        let line = at.held[delivery]?;
        if at.undone(world).any(|(ack, of)| of.end.is_some() && is_ack_of(world, ack, line)) {
            return None;
        }
        // If it comes again, it is received again.
        next.held[delivery] = None;
        next.state.deliveries[delivery] = Place::Settled;
    } else if step.what == PAUSED {
        let loses = |seen| matches!(seen, TraceStep::Fetched | TraceStep::Refunded | TraceStep::Crashed);
        at.undone(world).find(|(_, of)| loses(of.step))?;
    }
    Some(next)
}

/// The places behind a step that a line says.
fn lines(world: &World, at: &At, step: Step, after: &State, shown: Shown, reach: &mut dyn FnMut(At)) {
    let Some((seen, answered)) = shown.line() else { return };
    let is = |line: &usize| {
        let of = &world.lines.all[*line];
        of.step == seen
            && answered.is_none_or(|answered| of.end.is_some() == answered)
            && fits(world, at, *line, step, after)
    };
    if seen == TraceStep::Acked {
        // An ack changes nothing in the database, so that only its end counts: by then, it must have been possible.
        let Some(delivery) = changed(at, after) else { return };
        let Some(of) = at.held[delivery] else { return };
        let Some((ack, _)) = at.undone(world).find(|(ack, _)| is(ack) && is_ack_of(world, *ack, of)) else { return };
        let mut next = at.with(after.clone()).behind(ack);
        next.held[delivery] = None;
        return reach(next);
    }
    for (line, _) in at.open(world).filter(|(line, _)| is(line)) {
        let mut next = at.with(after.clone());
        let process = world.lines.process_of[line];
        if seen == TraceStep::Died {
            next = next.bury(world, process);
        } else if let Some(slot) = slot_of(step) {
            let Some(workers) = at.bound(world, worker(slot), process) else { continue };
            next.workers = workers;
        }
        lease::note(&mut next, &world.lines.all[line], step.message);
        reach(next.behind(line));
    }
}

/// Whether a line says what a step does: the process, the message, and the values after it.
fn fits(world: &World, at: &At, line: usize, step: Step, after: &State) -> bool {
    let (values, process) = (&world.lines.all[line].values, world.lines.process_of[line]);
    if world.lines.all[line].step == TraceStep::Died {
        let dies = WORKER_NAMES.iter().position(|name| *name == step.who);
        return dies.is_some_and(|worker| at.workers[worker] == Some(process));
    }
    if world.message_of[line].is_some_and(|message| message != step.message) {
        return false;
    }
    let row = after.rows[usize::from(step.message)];
    let task = slot_of(step).and_then(|slot| at.state.tasks[usize::from(slot)]);
    let same = |said: Option<u8>, is: Option<u8>| said.is_none() || said == is;
    let agrees = |said: Option<bool>, is: Option<bool>| said.is_none() || said == is;
    same(values.starts, row.map(|row| row.starts))
        && same(values.attempts, row.map(|row| row.attempts))
        && same(values.breaks, row.map(|row| row.breaks))
        && agrees(values.dead, row.map(|row| row.dead.is_some()))
        && agrees(values.of_row, task.map(|task| matches!(task.work, Work::Row(..))))
        && agrees(values.broke, task.map(|task| task.stage == Stage::Broke))
        && lease::going_on(at, &world.lines.all[line], step.message).is_none()
}

/// The slot that takes a step; `None` if no slot does.
fn slot_of(step: Step) -> Option<Slot> {
    (0..ALL).filter_map(|slot| Slot::try_from(slot).ok()).find(|slot| slot_name(*slot) == step.who)
}

/// The delivery whose place a step changes.
fn changed(at: &At, after: &State) -> Option<usize> {
    (0..DELIVERIES).find(|delivery| at.state.deliveries[*delivery] != after.deliveries[*delivery])
}

/// Whether a line is the ack of the delivery that another line received.
fn is_ack_of(world: &World, ack: usize, received: usize) -> bool {
    world.lines.all[ack].step == TraceStep::Acked && is_same(world, ack, received)
}

/// Whether two lines are about the same delivery.
fn is_same(world: &World, one: usize, other: usize) -> bool {
    let number = |line: usize| world.lines.all[line].values.delivery;
    world.lines.process_of[one] == world.lines.process_of[other] && number(one) == number(other)
}
