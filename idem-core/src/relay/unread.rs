//! The messages of a key that are not kept.

use super::level::Covered;
use super::room::MANY;

/// The messages of a key that are not kept, because there are too many, or because they are behind one that waits for its
/// next attempt.
#[derive(Debug)]
pub(super) struct Unread {
    /// Those that can be read have this id or a higher one. One of a transaction that commits late may have a lower one, and
    /// then it is above the level from which the next read of its lane begins.
    pub(super) from: i64,
    /// How many messages of the key may be kept. While more than half of these are here, reads leave the key out.
    pub(super) kept: usize,
    /// Whether the read that runs asks for them.
    pub(super) asked: bool,
    /// Whether a read has asked for them, was cut short, and brought none. The next one is for such keys, and no others.
    pub(super) missed: bool,
}

impl Unread {
    pub(super) fn new(from: i64) -> Self {
        Self { from, kept: MANY, asked: false, missed: false }
    }

    /// Records that messages from this id on are not kept. Nor are those that a read finds which runs: it may have left out
    /// some that are in front of them.
    pub(super) fn add(&mut self, id: i64) {
        self.from = self.from.min(id);
        self.asked = false;
    }

    /// Returns what is left after a read has covered this part of the lane.
    pub(super) fn after(self, covered: &Covered) -> Option<Self> {
        let from = match (self.asked, covered.to) {
            (true, None) => return None,
            (true, Some(to)) => self.from.max(to.saturating_add(1)),
            // It has left out the key, and with it what was committed late.
            (false, _) => self.from.min(covered.from),
        };
        // Those that it has brought are added later.
        Some(Self { from, missed: self.asked || self.missed, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_read_leaves_out_is_read_later_from_where_that_one_began() {
        let after = |asked, from, to| {
            let left = Unread { asked, ..Unread::new(50) }.after(&Covered { from, to });
            left.map(|unread| unread.from)
        };
        assert_eq!((after(true, 40, None), after(true, 40, Some(60))), (None, Some(61)));
        assert_eq!(after(true, 40, Some(45)), Some(50), "the read has not come so far");
        assert_eq!((after(false, 40, None), after(false, 40, Some(45))), (Some(40), Some(40)));
        assert_eq!(after(false, 60, None), Some(50));
    }

    #[test]
    fn what_fails_while_it_is_read_is_read_again() {
        let mut unread = Unread { asked: true, ..Unread::new(50) };
        unread.add(55);
        assert_eq!(unread.after(&Covered { from: 60, to: None }).map(|unread| unread.from), Some(50));
    }
}
