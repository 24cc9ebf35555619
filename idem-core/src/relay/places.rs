//! The places in which messages are published.

use super::entry::Place;

/// An eighth of all places is for messages with which destinations that hang are tried; if there are few places, so many are,
/// but no more than a quarter. There are also few if the broker counts as away, because no destination has answered.
const TRIED: usize = 4;

/// The places that are taken, by their kinds. One that is not confirmed keeps its place for the timeout, so each kind but
/// the first one is limited, and some places are left to messages of other destinations at any time.
#[derive(Debug, Default)]
pub(super) struct Places {
    any: usize,
    again: usize,
    aside: usize,
    goes_on: usize,
}

impl Places {
    pub(super) fn take(&mut self, place: Place) {
        *self.of(place) += 1;
    }

    pub(super) fn leave(&mut self, place: Place) {
        let of = self.of(place);
        *of = of.saturating_sub(1);
    }

    fn of(&mut self, place: Place) -> &mut usize {
        match place {
            Place::Any => &mut self.any,
            Place::Again => &mut self.again,
            Place::Aside => &mut self.aside,
            Place::GoesOn => &mut self.goes_on,
        }
    }

    /// How many messages are being published.
    pub(super) fn taken(&self) -> usize {
        self.any + self.again + self.aside + self.goes_on
    }

    /// How many places are taken, of each kind but the first no more than it has: if the broker counts as away, those that were
    /// taken before hold none of its few places.
    pub(super) fn counted(&self, quarter: usize) -> usize {
        let [again, aside, goes_on] = limits(quarter);
        self.any + self.again.min(again) + self.aside.min(aside) + self.goes_on.min(goes_on)
    }

    /// How many of them got no answer before.
    pub(super) fn again(&self) -> usize {
        self.again
    }

    /// Returns whether there is a place of this kind, if there is one of any kind. A quarter of all places is `quarter`.
    pub(super) fn has(&self, place: Place, quarter: usize) -> bool {
        let [again, aside, goes_on] = limits(quarter);
        match place {
            Place::Any => true,
            Place::Again => self.again < again,
            Place::Aside => self.aside < aside,
            Place::GoesOn => self.goes_on < goes_on,
        }
    }
}

/// Returns how many places there are for `Again`, `Aside` and `GoesOn`. The last has half of all places, but for one.
fn limits(quarter: usize) -> [usize; 3] {
    [quarter, (quarter / 2).max(quarter.min(TRIED)), quarter.saturating_mul(2).saturating_sub(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many messages take places of these kinds.
    fn taken(all: usize, kinds: &[Place]) -> usize {
        let (mut places, quarter) = (Places::default(), (all / 4).max(1));
        for place in kinds {
            while places.taken() <= all && places.has(*place, quarter) {
                places.take(*place);
            }
        }
        places.taken()
    }

    #[test]
    fn messages_without_an_answer_leave_places_to_others() {
        for all in 4..=1000 {
            assert!(taken(all, &[Place::Again, Place::Aside, Place::GoesOn]) < all, "{all}");
        }
        let each = |all| [Place::Again, Place::Aside, Place::GoesOn].map(|place| taken(all, &[place]));
        assert_eq!((each(500), each(16), each(4)), ([125, 62, 249], [4, 4, 7], [1, 1, 1]));
        let mut places = Places::default();
        places.take(Place::Aside);
        assert!(!places.has(Place::Aside, 1) && places.has(Place::Again, 1));
        places.leave(Place::Aside);
        assert!(places.has(Place::Aside, 1) && !places.has(Place::Again, 0));
    }

    #[test]
    fn places_that_were_taken_before_the_broker_was_away_are_none_of_its_few() {
        let mut places = Places::default();
        (0..62).for_each(|_| places.take(Place::Aside));
        assert_eq!((places.counted(125), places.counted(4)), (62, 4));
        places.take(Place::Any);
        assert_eq!(places.counted(4), 5);
    }
}
