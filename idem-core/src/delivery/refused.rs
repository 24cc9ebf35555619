//! How often the database has refused what idem writes for a delivery.

use std::any::Any;

/// How often the database has refused what idem writes for a delivery, and what counts it as held from the first time on,
/// for as long as this lives. A copy of the delivery, which handlers have, was never refused.
#[derive(Default)]
pub(crate) struct Refused {
    tries: usize,
    held: Option<Box<dyn Any + Send + Sync>>,
}

impl Refused {
    /// Once more. Answers how often in all.
    pub(crate) fn again<H: Any + Send + Sync>(&mut self, hold: impl FnOnce() -> H) -> usize {
        self.held.get_or_insert_with(|| Box::new(hold()));
        self.tries += 1;
        self.tries
    }

    /// How often.
    pub(crate) fn tries(&self) -> usize {
        self.tries
    }
}

impl Clone for Refused {
    fn clone(&self) -> Self {
        Self::default()
    }
}
