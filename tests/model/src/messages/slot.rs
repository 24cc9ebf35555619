//! The slots of the workers, in each of which one handler runs at a time.

/// Two workers, each a process of its own.
pub(super) const WORKERS: usize = 2;
/// How many handlers a worker runs at once.
pub(super) const SLOTS: usize = 2;
/// The slots of all workers.
pub(super) const ALL: usize = WORKERS * SLOTS;

/// The number of a slot. Slots 0 and 1 are those of worker A, 2 and 3 those of worker B.
pub(super) type Slot = u8;

/// The worker of a slot.
pub(super) fn worker(slot: Slot) -> usize {
    usize::from(slot) / SLOTS
}

/// The slots of a worker.
pub(super) fn slots(worker: usize) -> std::ops::Range<usize> {
    worker * SLOTS..(worker + 1) * SLOTS
}
