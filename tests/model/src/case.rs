//! The cases: each world with all rules, each limit of the rules, and each broken rule in a small world.

use crate::patience::Patience;
use crate::property::Property;
use crate::search::{End, Model, Searched, search};
use crate::{batch, calls, key_value, low_water, messages, patience, relay};

/// The result that a search must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// All properties hold.
    Holds,
    /// Without a rule, this property is violated.
    Caught(Property),
    /// With all rules, so many failures violate this property.
    Limit(Property),
}

/// One search.
pub(crate) struct Case {
    /// The part of the protocol.
    pub(crate) part: &'static str,
    /// The world, or the broken rule.
    pub(crate) text: &'static str,
    /// The result that it must have.
    pub(crate) expected: Expected,
    run: Box<dyn Fn() -> Searched + Send + Sync>,
}

impl Case {
    /// Searches its states.
    pub(crate) fn run(&self) -> Searched {
        (self.run)()
    }
}

/// The most states of a world in which a rule is broken.
const BROKEN: usize = 1_500_000;

/// All cases. `small`: with few enough failures for CI.
pub(crate) fn cases(small: bool) -> Vec<Case> {
    // More states than each world has, so that a change that adds many is noticed.
    let limit = if small { 4_000_000 } else { 60_000_000 };
    let mut cases = Vec::new();
    for (defect, text, property) in messages::Defect::ALL {
        let world = messages::of(*defect);
        cases.push(broken("messages", text, *property, world.clone().broken(*defect), world));
    }
    for (defect, text, property) in patience::Defect::ALL {
        let (defective, sound) = (Patience::broken(*defect), Patience::SOUND);
        cases.push(broken("patience", text, *property, defective, sound));
    }
    for (defect, text, property) in batch::Defect::ALL {
        let world = batch::of(*defect);
        cases.push(broken("batch", text, *property, world.clone().broken(*defect), world));
    }
    for (defect, text, property) in relay::Defect::ALL {
        let world = relay::of(*defect);
        cases.push(broken("relay", text, *property, world.clone().broken(*defect), world));
    }
    for (defect, text, property) in low_water::Defect::ALL {
        let world = low_water::of(*defect);
        cases.push(broken("low_water", text, *property, world.clone().broken(*defect), world));
    }
    for (defect, text, property) in calls::Defect::ALL {
        let world = calls::of(*defect);
        cases.push(broken("calls", text, *property, world.clone().broken(*defect), world));
    }
    for (defect, text, property) in key_value::Defect::ALL {
        let world = key_value::of(*defect);
        cases.push(broken("key_value", text, *property, world.clone().broken(*defect), world));
    }
    for world in messages::limits() {
        let (property, world_name) = (Property::InnocentsLive, world.name);
        let run = Box::new(move || search(&world, &[property], limit));
        cases.push(Case { part: "messages", text: world_name, expected: Expected::Limit(property), run });
    }
    cases.extend(messages::worlds(small).into_iter().map(|world| whole("messages", world.name, limit, world)));
    cases.push(whole("patience", "work that runs for longer than a lease", limit, Patience::SOUND));
    cases.extend(batch::worlds(small).into_iter().map(|world| whole("batch", world.name, limit, world)));
    cases.extend(relay::worlds(small).into_iter().map(|world| whole("relay", world.name, limit, world)));
    cases.extend(low_water::worlds().into_iter().map(|world| whole("low_water", world.name, limit, world)));
    cases.extend(key_value::worlds().into_iter().map(|world| whole("key_value", world.name, limit, world)));
    cases.extend(calls::worlds(small).into_iter().map(|world| whole("calls", world.name, limit, world)));
    cases
}

/// A world with a broken rule. Only the property that it must violate is looked at, so that it is not caught by accident;
/// and with the rule, every property must hold in this world.
fn broken<M: Model + Send + Sync + 'static>(
    part: &'static str,
    text: &'static str,
    property: Property,
    defective: M,
    sound: M,
) -> Case {
    let run = move || {
        let with_rule = search(&sound, M::PROPERTIES, BROKEN);
        match with_rule.end {
            End::Exhausted => search(&defective, &[property], BROKEN),
            End::Limit => with_rule,
            End::Violated(found, trace) | End::Unsound(found, trace) => {
                Searched { states: with_rule.states, end: End::Unsound(found, trace) }
            }
        }
    };
    Case { part, text, expected: Expected::Caught(property), run: Box::new(run) }
}

/// A world with all rules.
fn whole<M: Model + Send + Sync + 'static>(part: &'static str, text: &'static str, limit: usize, model: M) -> Case {
    Case { part, text, expected: Expected::Holds, run: Box::new(move || search(&model, M::PROPERTIES, limit)) }
}
