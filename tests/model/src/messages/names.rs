//! The names of those who take steps.

use super::slot::Slot;

/// Nobody in particular: the sentence says who.
pub(super) const WORLD: &str = "";

/// A transaction that is rolled back without a recorded attempt, so that the next one can follow at once.
pub(super) const AGAIN: &str =
    "loses a race with _, or its batch is rolled back, and it begins again, with no attempt recorded";

/// The names of the workers.
pub(super) const WORKER_NAMES: [&str; 2] = ["worker A", "worker B"];

/// The name of a slot.
pub(super) fn slot_name(slot: Slot) -> &'static str {
    ["worker A, slot 1", "worker A, slot 2", "worker B, slot 1", "worker B, slot 2"][usize::from(slot)]
}
