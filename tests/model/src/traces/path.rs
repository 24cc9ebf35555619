//! The part of a trace that must be a path of the model, and the places on the way.

use std::hash::Hash;

use super::done::Done;
use super::lines::Lines;

/// Lines that must be a path of the model.
pub(crate) trait Path {
    /// A place on the way: a state of the model, and the lines that are done.
    type At: Clone + Eq + Hash;

    /// The lines.
    fn lines(&self) -> &Lines;

    /// The place before the first line.
    fn first(&self) -> Self::At;

    /// The lines that are done at a place.
    fn done<'a>(&self, at: &'a Self::At) -> &'a Done;

    /// Calls `reach` with each next place: behind one step of the model, which a line says or which writes nothing.
    fn moves(&self, at: &Self::At, reach: &mut dyn FnMut(Self::At));

    /// Reports the steps that are possible at a place and that are lines, in words.
    fn possible(&self, at: &Self::At, report: &mut dyn FnMut(String));

    /// Says why a line is not possible at a place, if its time is the reason.
    fn hint(&self, at: &Self::At, line: usize) -> Option<&'static str>;
}
