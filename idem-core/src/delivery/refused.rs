//! How often the database has refused what idem writes for a delivery.

use std::any::Any;

/// How often the database has refused what idem writes for a delivery, and the value that counts the delivery as held
/// from the first refusal until this is dropped. It is not cloned: the copy of a delivery that a handler gets starts at
/// zero.
#[derive(Default)]
pub(crate) struct Refused {
    tries: usize,
    held: Option<Box<dyn Any + Send + Sync>>,
}

impl Refused {
    /// It was not refused.
    pub(super) const fn none() -> Self {
        Self { tries: 0, held: None }
    }

    /// Counts one more refusal and returns their number.
    pub(crate) fn again<H: Any + Send + Sync>(&mut self, hold: impl FnOnce() -> H) -> usize {
        self.held.get_or_insert_with(|| Box::new(hold()));
        self.tries += 1;
        self.tries
    }

    /// The number of refusals.
    pub(crate) fn tries(&self) -> usize {
        self.tries
    }
}

impl Clone for Refused {
    fn clone(&self) -> Self {
        Self::default()
    }
}
