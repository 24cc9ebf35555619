//! One step of a model, in plain words.

use std::fmt::{Display, Formatter, Result};

/// One step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Who takes it; empty if the sentence says it.
    pub(crate) who: &'static str,
    /// The sentence, with `_` in the place of the message.
    pub(crate) what: &'static str,
    /// The number of the message.
    pub(crate) message: u8,
    /// Whether it brings the model nearer to its end. A failure does not, and neither does a release.
    pub(crate) progress: bool,
}

impl Display for Step {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        let message = ["a", "b", "c"].get(usize::from(self.message)).copied().unwrap_or("?");
        out.write_str(self.who)?;
        out.write_str(if self.who.is_empty() { "" } else { ": " })?;
        out.write_str(&self.what.replace('_', message))
    }
}

/// A state of a world, and the steps that it permits.
pub(crate) struct Steps<'a, World, State> {
    pub(crate) world: &'a World,
    pub(crate) state: &'a State,
    reach: &'a mut dyn FnMut(Step, State),
}

impl<'a, World, State: Clone> Steps<'a, World, State> {
    pub(crate) fn new(world: &'a World, state: &'a State, reach: &'a mut dyn FnMut(Step, State)) -> Self {
        Self { world, state, reach }
    }

    /// A step that changes the state in this way.
    pub(crate) fn step(&mut self, who: &'static str, what: &'static str, message: u8, change: impl FnOnce(&mut State)) {
        self.reach(Step { who, what, message, progress: true }, change);
    }

    /// A failure, or a step that need not be taken.
    pub(crate) fn setback(
        &mut self,
        who: &'static str,
        what: &'static str,
        message: u8,
        change: impl FnOnce(&mut State),
    ) {
        self.reach(Step { who, what, message, progress: false }, change);
    }

    fn reach(&mut self, step: Step, change: impl FnOnce(&mut State)) {
        let mut after = self.state.clone();
        change(&mut after);
        (self.reach)(step, after);
    }
}
