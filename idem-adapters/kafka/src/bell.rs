//! What wakes the consumer's thread.

/// What the thread waits for while it sleeps, besides records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Waits {
    #[default]
    Nothing,
    /// Room for more records of a partition, and not for one after another while others are left to hand out.
    Room,
    /// The end of all running deliveries; wakes at each one that is settled.
    Quiet,
}

/// Remembers what has happened since the thread last woke, so that nothing is missed that happens just before it
/// sleeps.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    waits: Waits,
    /// There is something to do.
    rung: bool,
    /// A delivery was settled.
    settled: bool,
    /// There is enough room in a partition to receive more of it.
    room: bool,
}

impl Bell {
    pub(crate) fn ring(&mut self) {
        self.rung = true;
    }

    /// Notes a settled delivery, and whether there is enough room in its partition now, which is not asked if there was
    /// enough in one since the thread last woke. Returns whether that wakes the thread.
    pub(crate) fn settled(&mut self, room: impl FnOnce() -> bool) -> bool {
        self.settled = true;
        self.room = self.room || room();
        self.waits != Waits::Nothing && self.wakes()
    }

    /// Notes a delivery that was handed out, and whether its partition should receive more now, because nothing is left
    /// to hand out. That is asked as for a settled one. Returns whether it wakes the thread.
    pub(crate) fn handed_out(&mut self, room: impl FnOnce() -> bool) -> bool {
        let room = !self.room && room();
        self.room |= room;
        room && self.waits == Waits::Room
    }

    /// Handles that the thread is about to sleep. Returns `false` if it must not, because what it waits for has
    /// happened.
    pub(crate) fn sleep(&mut self, waits: Waits) -> bool {
        self.waits = waits;
        !self.wakes()
    }

    /// Handles that the thread has woken.
    pub(crate) fn woke(&mut self) {
        *self = Self::default();
    }

    fn wakes(&self) -> bool {
        self.rung
            || match self.waits {
                Waits::Nothing => false,
                Waits::Room => self.room,
                Waits::Quiet => self.settled,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_room_is_woken_by_room_and_who_waits_for_the_end_by_each_settled_delivery() {
        for (waits, room, wakes) in [
            (Waits::Nothing, true, false),
            (Waits::Room, false, false),
            (Waits::Room, true, true),
            (Waits::Quiet, false, true),
        ] {
            let mut bell = Bell::default();
            assert!(bell.sleep(waits));
            assert_eq!(bell.settled(|| room), wakes, "{waits:?}, {room}");
        }
    }

    #[test]
    fn the_last_record_that_is_handed_out_wakes_who_waits_for_room() {
        let mut bell = Bell::default();
        assert!(bell.sleep(Waits::Room));
        assert_eq!((bell.handed_out(|| false), bell.handed_out(|| true)), (false, true));
        bell.woke();
        assert!(!bell.handed_out(|| true), "it is awake");
        assert!(!bell.sleep(Waits::Room), "and must not sleep");
        bell.woke();
        assert!(bell.sleep(Waits::Quiet) && !bell.handed_out(|| true));
    }

    #[test]
    fn an_event_just_before_the_thread_sleeps_keeps_it_awake_once() {
        let mut bell = Bell::default();
        assert!(!bell.settled(|| true), "it is awake");
        assert!(!bell.sleep(Waits::Room));
        bell.woke();
        assert!(bell.sleep(Waits::Room));
        bell.woke();
        assert!(!bell.settled(|| false));
        assert!(bell.sleep(Waits::Room), "there is not enough room");
        assert!(!bell.sleep(Waits::Quiet));
        bell.woke();
        bell.ring();
        assert!(!bell.sleep(Waits::Nothing));
    }
}
