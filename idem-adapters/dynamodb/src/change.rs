//! The conditional changes of a record, one for each step.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

use crate::item::{Attributes, Value};

/// What is written, and on which condition. A word that begins with `#` is the attribute of that name, since many of the names are
/// reserved. One that begins with `:` is a value; that of a state is itself.
pub(crate) struct Statement {
    /// Empty: the record is deleted.
    pub(crate) update: &'static str,
    pub(crate) condition: &'static str,
}

const START: &str = "SET #state = :running, #fingerprint = :fingerprint, #token = :token, #until = :until, \
    #starts = :starts, #ttl = :ttl REMOVE #at";

/// Starts a message without a record, or whose record has ended.
pub(crate) const ACQUIRE: Statement =
    Statement { update: START, condition: "attribute_not_exists(#pk) OR #ttl <= :now" };

/// Starts a message again whose record is still the one that was read.
pub(crate) const TAKE_OVER: Statement = Statement {
    update: START,
    condition: "#state = :running AND #token = :seen AND #until = :ended AND attribute_not_exists(#letter)",
};

/// The same behind a replay. Its letter stays, and so has no end, until the message is completed or buried.
pub(crate) const RESUME: Statement = Statement {
    update: "SET #fingerprint = :fingerprint, #token = :token, #until = :until, #starts = :starts",
    condition: "#state = :running AND #token = :seen AND #until = :ended AND attribute_exists(#letter)",
};

/// Lets the lease last, if the record lasts for at least as long. One with a letter has no end.
pub(crate) const RENEW: Statement = Statement {
    update: "SET #until = :until",
    condition: "#state = :running AND #token = :token AND (#ttl >= :ttl OR attribute_not_exists(#ttl))",
};

/// The same, for a run that takes longer than the retention.
pub(crate) const PROLONG: Statement =
    Statement { update: "SET #until = :until, #ttl = :ttl", condition: "#state = :running AND #token = :token" };

/// Deletes a record of one start.
pub(crate) const FORGET: Statement = Statement {
    update: "",
    condition: "#state = :running AND #token = :token AND #starts = :one AND attribute_not_exists(#letter)",
};

/// Takes the last start back.
pub(crate) const RELEASE: Statement = Statement {
    update: "SET #token = :nobody, #until = :zero, #starts = #starts - :one",
    condition: "#state = :running AND #token = :token",
};

/// Changes nothing. It shows whether the token has the lease, and that the policy permits changes of records.
pub(crate) const TOUCH: Statement =
    Statement { update: "SET #token = :token", condition: "#state = :running AND #token = :token" };

pub(crate) const COMPLETE: Statement = Statement {
    update: "SET #state = :done, #at = :at, #ttl = :ttl REMOVE #until, #starts",
    condition: "#state = :running AND #token = :token AND attribute_not_exists(#letter)",
};

/// The same behind a replay. The condition above has failed before, so the parts of the letter are known.
pub(crate) const COMPLETE_REPLAYED: Statement = Statement { update: END, condition: REPLAYED };

pub(crate) const BURY: Statement =
    Statement { update: DIE, condition: "#state = :running AND #token = :token AND attribute_not_exists(#letter)" };

/// The same behind a replay.
pub(crate) const BURY_AGAIN: Statement = Statement { update: DIE, condition: REPLAYED };

const REPLAYED: &str = "#state = :running AND #token = :token AND attribute_exists(#letter)";

const END: &str = "SET #state = :done, #at = :at, #ttl = :ttl REMOVE #until, #starts, #letter, #parts, #sum, #dead";

const DIE: &str = "SET #state = :dead, #at = :at, #letter = :letter, #parts = :parts, #sum = :sum, #dead = :consumer \
    REMOVE #until, #starts, #ttl";

/// Lets the key run. The letter stays, and is listed, until the message that is published again is completed or buried.
pub(crate) const REPLAY: Statement = Statement {
    update: "SET #state = :running, #token = :nobody, #until = :zero, #starts = :zero REMOVE #at",
    condition: "#state = :dead",
};

/// Completes a message in place of its letter, also of one that was replayed. A run of it is over then.
pub(crate) const DISCARD: Statement =
    Statement { update: END, condition: "attribute_exists(#letter) AND #parts = :zero" };

/// The same for a letter with more parts, which is still the one that was read.
pub(crate) const DISCARD_PARTS: Statement = Statement { update: END, condition: "#sum = :sum" };

/// A statement with its names and values, of which DynamoDB takes exactly those that occur.
pub(crate) struct Change {
    pub(crate) statement: Statement,
    pub(crate) names: HashMap<String, String>,
    pub(crate) values: Attributes,
}

impl Change {
    pub(crate) fn new(statement: Statement) -> Self {
        let words = [statement.update, statement.condition].into_iter().flat_map(words);
        let (mut names, mut values) = (HashMap::new(), Attributes::new());
        for word in words {
            if let Some(name) = word.strip_prefix('#') {
                names.insert(word.to_owned(), name.to_owned());
            }
            if let Some(state @ ("running" | "done" | "dead")) = word.strip_prefix(':') {
                values.insert(word.to_owned(), AttributeValue::S(state.to_owned()));
            }
        }
        Self { statement, names, values }
    }

    /// Sets a value.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.values.insert(name.to_owned(), value.into().0);
        self
    }
}

/// Returns the names in an expression, of attributes and of values.
fn words(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|char: char| !char.is_ascii_alphanumeric() && !"#:_".contains(char));
    words.filter(|word| word.starts_with(['#', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_has_the_names_and_states_that_occur() {
        let change = Change::new(COMPLETE).with(":at", 7);
        let mut names: Vec<_> = change.names.into_iter().collect();
        names.sort();
        let names: Vec<_> = names.iter().map(|(word, name)| format!("{word}={name}")).collect();
        let expected = "#at=at #letter=letter #starts=starts #state=state #token=token #ttl=ttl #until=until";
        assert_eq!(names.join(" "), expected);
        let mut values: Vec<_> = change.values.into_keys().collect();
        values.sort();
        assert_eq!(values, [":at", ":done", ":running"]);
    }
}
