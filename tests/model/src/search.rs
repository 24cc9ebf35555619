//! The search: every state that a model can reach, breadth first, so that the first violation has a shortest trace.

use std::hash::Hash;

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use crate::property::Property;
use crate::step::Step;

/// Where a model passes each step that a state permits, with the state behind it.
pub(crate) type Reach<'a, M> = dyn FnMut(Step, <M as Model>::State) + 'a;

/// Something that has states, and steps between them.
pub(crate) trait Model {
    /// All that can change. Two states that are equal have the same future.
    type State: Clone + Eq + Hash;

    /// The properties that each state must have.
    const PROPERTIES: &'static [Property];

    /// The state before the first step.
    fn first(&self) -> Self::State;

    /// Calls `reach` with each step that the state permits.
    fn steps(&self, state: &Self::State, reach: &mut Reach<'_, Self>);

    /// Whether the state violates the property.
    fn violates(&self, state: &Self::State, property: Property) -> bool;

    /// Whether nothing is left to be done. A state that permits no step that is progress must be quiet.
    fn is_quiet(&self, state: &Self::State) -> bool;

    /// The one that stands for all states that differ only in the names of equal things, as of two workers.
    fn canonical(&self, state: Self::State) -> Self::State {
        state
    }
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Searched {
    /// The number of states that were reached.
    pub(crate) states: usize,
    /// The end of the search.
    pub(crate) end: End,
}

/// How a search ended.
#[derive(Debug)]
pub(crate) enum End {
    /// Every state was reached, and none violates a property.
    Exhausted,
    /// There are more states than the limit.
    Limit,
    /// A state violates the property; the steps to it, in plain words.
    Violated(Property, Vec<String>),
    /// The same, of a world in which a rule was to be broken, before it was.
    Unsound(Property, Vec<String>),
}

/// Searches the states of a model for a violation of one of `properties`, up to `limit` states.
pub(crate) fn search<M: Model>(model: &M, properties: &[Property], limit: usize) -> Searched {
    let mut found = States::<M> { model, states: IndexSet::default(), parents: Vec::new() };
    found.add(model.first(), 0);
    let mut place = 0;
    while let Some(state) = found.states.get_index(place) {
        let state = state.clone();
        let broken = properties.iter().find(|property| model.violates(&state, **property));
        if let Some(property) = broken {
            return found.violation(*property, place);
        }
        let mut stuck = true;
        model.steps(&state, &mut |step, after| {
            stuck &= !step.progress;
            found.add(model.canonical(after), place);
        });
        if stuck && properties.contains(&Property::Progress) && !model.is_quiet(&state) {
            return found.violation(Property::Progress, place);
        }
        if found.states.len() > limit {
            return Searched { states: found.states.len(), end: End::Limit };
        }
        place += 1;
    }
    Searched { states: found.states.len(), end: End::Exhausted }
}

/// The states that were reached, each once, with the number of the state before it.
struct States<'a, M: Model> {
    model: &'a M,
    states: IndexSet<M::State, FixedState>,
    parents: Vec<u32>,
}

impl<M: Model> States<'_, M> {
    fn add(&mut self, state: M::State, parent: usize) {
        if self.states.insert(state) {
            self.parents.push(u32::try_from(parent).unwrap_or(u32::MAX));
        }
    }

    fn violation(&self, property: Property, place: usize) -> Searched {
        Searched { states: self.states.len(), end: End::Violated(property, self.trace(place)) }
    }

    /// The steps to a state. They are walked again from the first state, without exchanging equal things, so that a
    /// worker keeps its name.
    fn trace(&self, mut place: usize) -> Vec<String> {
        let mut path = Vec::new();
        while place != 0 {
            path.push(place);
            place = self.parents[place] as usize;
        }
        let (mut now, mut trace) = (self.model.first(), Vec::new());
        for next in path.into_iter().rev().filter_map(|place| self.states.get_index(place)) {
            let mut taken = None;
            self.model.steps(&now, &mut |step, after| {
                if taken.is_none() && self.model.canonical(after.clone()) == *next {
                    taken = Some((step.to_string(), after));
                }
            });
            let Some((step, after)) = taken else { break };
            trace.push(step);
            now = after;
        }
        trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::Steps;

    /// Two equal counters. Each may be raised to 3, and one of them from 2 to a trap that it cannot leave.
    struct Counters {
        trap: bool,
    }

    impl Model for Counters {
        type State = [u8; 2];

        const PROPERTIES: &'static [Property] = &[Property::NothingTwice, Property::Progress];

        fn first(&self) -> [u8; 2] {
            [0, 0]
        }

        fn steps(&self, state: &[u8; 2], reach: &mut Reach<'_, Self>) {
            let mut steps = Steps::new(self, state, reach);
            for (counter, name) in ["the first", "the second"].into_iter().enumerate() {
                if state[counter] < 3 {
                    steps.step(name, "is raised", 0, |after| after[counter] += 1);
                }
                if self.trap && (state[counter] == 2 || state[counter] == 9) {
                    steps.setback(name, "is in the trap", 0, |after| after[counter] = 9);
                }
            }
        }

        fn violates(&self, state: &[u8; 2], property: Property) -> bool {
            property == Property::NothingTwice && *state == [1, 2]
        }

        fn is_quiet(&self, state: &[u8; 2]) -> bool {
            !state.contains(&9)
        }

        fn canonical(&self, mut state: [u8; 2]) -> [u8; 2] {
            state.sort_unstable();
            state
        }
    }

    #[test]
    fn the_trace_to_a_violation_is_the_shortest_and_keeps_the_names() {
        let found = search(&Counters { trap: false }, &[Property::NothingTwice], 100);
        let End::Violated(Property::NothingTwice, trace) = found.end else { panic!("{found:?}") };
        assert_eq!(trace, ["the first: is raised", "the second: is raised", "the first: is raised"]);
    }

    #[test]
    fn equal_states_are_searched_once() {
        let found = search(&Counters { trap: false }, &[Property::Progress], 100);
        assert!(matches!(found, Searched { states: 10, end: End::Exhausted }), "{found:?}");
    }

    #[test]
    fn a_state_that_is_not_quiet_and_permits_no_progress_is_found() {
        let found = search(&Counters { trap: true }, &[Property::Progress], 100);
        let End::Violated(Property::Progress, trace) = found.end else { panic!("{found:?}") };
        assert_eq!(trace.len(), 6, "{trace:?}");
    }

    #[test]
    fn a_search_ends_at_its_limit() {
        let found = search(&Counters { trap: false }, &[Property::Progress], 5);
        assert!(matches!(found.end, End::Limit), "{found:?}");
    }
}
