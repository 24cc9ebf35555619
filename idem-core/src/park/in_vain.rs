//! How long a delivery waits whose try was in vain. No attempt is charged.

use std::time::Duration;

use crate::runtime::{Pipeline, Refused, Wait, busy_wait, hold_wait, refused_wait, warn_of_refusal};
use crate::{BoxError, Delivery, Store};

use super::Carried;

/// After this many tries in a row without an answer, a delivery counts as refused. If another transaction holds its claim for
/// as long, the database is pinged.
const UNANSWERED: usize = 3;

impl<S: Store> Pipeline<S> {
    /// Counts a try in vain, and returns the time until the next one, which grows from try to try. Any other reason is returned as
    /// it is.
    pub(crate) fn in_vain(&self, delivery: &Delivery, carried: &mut Carried, wait: Wait) -> Wait {
        let tries = carried.tries;
        Wait::After(match wait {
            // The end of an outage or of a pause is waited for in any case.
            Wait::Free => Duration::ZERO,
            // The database may respond to others: this message may be the one that takes too long.
            Wait::Answer if tries >= UNANSWERED => {
                let why = "the database repeatedly did not answer for this message, although it answers for others";
                self.refused(delivery, carried, &why.into())
            }
            Wait::Answer => {
                carried.tries += 1;
                hold_wait(tries)
            }
            Wait::Claim => {
                carried.tries += 1;
                // Another transaction holds its claim, so the database does not refuse it.
                carried.refused = None;
                if tries + 1 >= UNANSWERED {
                    // Each claim may be held up: the table may be locked, or the database read-only.
                    self.outage.ask();
                }
                busy_wait(tries + 1)
            }
            Wait::Refused(error) => self.refused(delivery, carried, &error),
            Wait::After(_) | Wait::Codec | Wait::Key | Wait::Order | Wait::Row(_) => return wait,
        })
    }

    /// Counts a try of a delivery whose writes the database refuses, although it works for others, and returns the time until the
    /// next one. The log names the delivery, because it is the one to investigate.
    fn refused(&self, delivery: &Delivery, carried: &mut Carried, error: &BoxError) -> Duration {
        carried.refused.get_or_insert_with(|| Refused::new(&self.outage));
        carried.tries += 1;
        warn_of_refusal(delivery, Some(carried.tries), error.as_ref());
        refused_wait(carried.tries - 1)
    }
}
