//! Changes that operators make: of which rows, and by whom.

use std::borrow::Cow;

use uuid::Uuid;

use super::{Replay, Resolution};

/// Who changes messages, and the command to which the change belongs. A store writes it with each message that it changes, in the
/// same statement or transaction, to the table `operations`.
///
/// ```
/// # use idem_core::store::By;
/// let by = By::new("anna");
/// assert_eq!(by.actor, "anna");
/// assert_ne!(by.command, By::new("anna").command, "another command");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct By {
    /// The person, or the program.
    pub actor: String,
    /// The same for all changes of one command.
    pub command: Uuid,
}

/// The longest name of an actor, in characters.
const LONGEST: usize = 200;

impl By {
    /// This person, with a new command. The name is cut to 200 characters; control characters are left out.
    pub fn new(actor: impl Into<String>) -> Self {
        let actor = actor.into().chars().filter(|c| !c.is_control()).take(LONGEST).collect();
        Self { actor, command: Uuid::new_v4() }
    }

    /// The user of this process, by its environment (`USER`, `LOGNAME`, `USERNAME`), with a new command; `unknown` if that names
    /// none.
    pub fn user() -> Self {
        let mut names = ["USER", "LOGNAME", "USERNAME"].into_iter().filter_map(|name| std::env::var(name).ok());
        Self::new(names.find(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned()))
    }
}

/// The rows of the inbox that an operator changes.
// Exhaustive: callers make it, and a store that ignored a new part of it would change too many rows.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    /// Rows of other consumers are not found; `None`: of all consumers.
    pub consumer: Option<&'a str>,
    /// The ids of the rows.
    pub ids: &'a [i64],
}

impl<'a> Of<'a> {
    /// The rows with these ids, of any consumer.
    pub fn all(ids: &'a [i64]) -> Self {
        Self { consumer: None, ids }
    }

    /// Those of them that belong to this consumer.
    pub fn consumer(consumer: &'a str, ids: &'a [i64]) -> Self {
        Self { consumer: Some(consumer), ids }
    }

    /// The first row only, for a change that concerns one message.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn first(self) -> Self {
        Self { ids: &self.ids[..self.ids.len().min(1)], ..self }
    }
}

impl Replay<'_> {
    /// The word for it in the table `operations`.
    pub fn action(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Plain => "replayed",
            Self::Forced => "replayed by force",
            Self::As(key) => return Cow::Owned(format!("replayed under the key {key}")),
            Self::NewKeys => "replayed for new keys",
        })
    }
}

impl Resolution {
    /// The word for it in the table `operations`.
    pub fn action(&self) -> &'static str {
        match self {
            Self::Answer(_) => "answered",
            Self::CallAgain => "called again",
            Self::Discard => "discarded",
        }
    }
}

/// The word in the table `operations` for what becomes of a dead letter of an outbox.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn outgoing_action(again: bool) -> &'static str {
    if again { "staged again" } else { "discarded" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_and_has_no_control_characters() {
        assert_eq!(By::new("an\0na\u{1b}[2J\n").actor, "anna[2J");
        assert_eq!(By::new("ä".repeat(300)).actor.chars().count(), LONGEST);
    }
}
