//! The digests around one message, and the judgement of them.

use super::digest::{Change, Digest};
use super::elsewhere::Elsewhere;

/// The digests around one message, and its effects outside of the database.
pub(super) struct Observed<D> {
    pub(super) before: D,
    /// When its process was dead, and the next one had not started. `None` if no process died.
    pub(super) between: Option<D>,
    pub(super) after: D,
    /// The effects elsewhere when its process was dead.
    pub(super) elsewhere_between: Elsewhere,
    pub(super) elsewhere: Elsewhere,
    /// Whether each part of the digest may change in another process, since handlers of local messages make a part of the
    /// effect, each in its own transaction.
    pub(super) by_parts: bool,
}

/// The effect of one message.
pub(super) struct One {
    pub(super) change: Change,
    pub(super) elsewhere: Elsewhere,
}

impl<D: Digest> Observed<D> {
    /// The effect of the message.
    pub(super) fn one(self) -> One {
        One { change: self.change(), elsewhere: self.elsewhere }
    }

    /// The change by the message.
    fn change(&self) -> Change {
        self.after.change(&self.before)
    }

    /// Whether the process that died had made the effect.
    pub(super) fn had_effect(&self) -> bool {
        self.between.as_ref().is_some_and(|between| !between.change(&self.before).is_none())
    }

    /// Checks that one process made the whole effect, and that it is that of one message. Otherwise, returns what was
    /// seen.
    pub(super) fn check(&self, one: &One) -> Result<(), String> {
        let (whole, one_change) = (self.change(), &one.change);
        if let Some(between) = &self.between {
            let (first, second) = (between.change(&self.before), self.after.change(between));
            let both = !first.is_none() && !second.is_none();
            // The amount alone would not show it: of rows, one that is changed twice is as many as one that is changed
            // once.
            if both && (!self.by_parts || first.has_part_in(&second)) {
                return Err(format!(
                    "there were effects in both processes: of the one that died ({first}), and of the next one \
                     ({second}); that of one message is {one_change}. An effect that survives a rollback was made \
                     outside of the transaction"
                ));
            }
        }
        if whole.is_none() {
            return Err(format!(
                "there was no effect; that of one message is {one_change}. Does the handler remember messages outside \
                 of its transaction?"
            ));
        }
        if whole != *one_change {
            return Err(format!("the effect was {whole}, and that of one message is {one_change}"));
        }
        self.elsewhere.check(&one.elsewhere)
    }
}
