//! The digests around one message, and the judgement of them.

use super::digest::{Change, Digest};

/// The digests around one message.
pub(super) struct Observed<D> {
    pub(super) before: D,
    /// When its process was dead, and the next one had not started. `None` if no process died.
    pub(super) between: Option<D>,
    pub(super) after: D,
}

impl<D: Digest> Observed<D> {
    /// The change by the message.
    pub(super) fn change(&self) -> Change {
        self.after.change(&self.before)
    }

    /// Whether the process that died had made the effect.
    pub(super) fn had_effect(&self) -> bool {
        self.between.as_ref().is_some_and(|between| !between.change(&self.before).is_none())
    }

    /// Checks that one process made the whole effect, and that it is that of one message. Otherwise, returns what was
    /// seen.
    pub(super) fn check(&self, one: &Change) -> Result<(), String> {
        let whole = self.change();
        if let Some(between) = &self.between {
            let (first, second) = (between.change(&self.before), self.after.change(between));
            // The amount alone would not show it: of rows, one that is changed twice is as many as one that is changed
            // once.
            if !first.is_none() && !second.is_none() {
                return Err(format!(
                    "there were effects in both processes: of the one that died ({first}), and of the next one ({second}); \
                     that of one message is {one}. An effect that survives a rollback was made outside of the transaction"
                ));
            }
        }
        if whole.is_none() {
            return Err(format!(
                "there was no effect; that of one message is {one}. Does the handler remember messages outside of its \
                 transaction?"
            ));
        }
        if whole != *one {
            return Err(format!("the effect was {whole}, and that of one message is {one}"));
        }
        Ok(())
    }
}
