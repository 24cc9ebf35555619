//! How long a delivery waits whose try was in vain. No attempt is charged.

use std::time::Duration;

use crate::runtime::{Pipeline, Refused, Turn, busy_wait, hold_wait, refused_wait, warn_of_refusal};
use crate::{BoxError, Delivery, Store};

use super::Carried;

/// After this many tries in a row without an answer, a delivery counts as refused. If another transaction holds its claim for
/// as long, the database is pinged.
pub(crate) const UNANSWERED: usize = 3;

impl<S: Store> Pipeline<S> {
    /// Counts a try in vain. Returns the time until the next one, which grows from try to try. A delivery that waits for something
    /// else waits for that.
    pub(crate) fn in_vain(&self, delivery: &Delivery, carried: &mut Carried, turn: Turn) -> Turn {
        let tries = carried.tries;
        Turn::After(match turn {
            // The end of an outage or of a pause is waited for in any case.
            Turn::Free => Duration::ZERO,
            // The database may respond to others: this message may be the one that takes too long.
            Turn::Answer if tries >= UNANSWERED => {
                let why = "the database repeatedly did not answer for this message, although it answers for others";
                self.refused(delivery, carried, &why.into())
            }
            Turn::Answer => {
                carried.tries += 1;
                hold_wait(tries)
            }
            Turn::Claim => {
                carried.tries += 1;
                // Another transaction holds its claim, so the database does not refuse it.
                carried.refused = None;
                if tries + 1 >= UNANSWERED {
                    // Each claim may be held up: the table may be locked, or the database read-only.
                    self.outage.ask();
                }
                busy_wait(tries + 1)
            }
            Turn::Refused(error) => self.refused(delivery, carried, &error),
            Turn::After(_) | Turn::Codec | Turn::Key | Turn::Order | Turn::Row(_) => return turn,
        })
    }

    /// Does the same for a delivery whose writes the database refuses, although it works for others. The log names it, because
    /// it is the one to investigate.
    fn refused(&self, delivery: &Delivery, carried: &mut Carried, error: &BoxError) -> Duration {
        carried.refused.get_or_insert_with(|| Refused::new(&self.outage));
        carried.tries += 1;
        warn_of_refusal(delivery, Some(carried.tries), error.as_ref());
        refused_wait(carried.tries - 1)
    }
}
