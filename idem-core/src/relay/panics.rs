//! Panics of a sink.

use std::collections::HashSet;

/// At how many different messages in a row a sink panics before it counts as broken.
const MOST: usize = 5;

/// The messages at which a sink has panicked since it last answered.
#[derive(Debug, Default)]
pub(super) struct Panics(HashSet<i64>);

impl Panics {
    /// Records a panic. Returns whether the sink is broken, rather than this message one that it cannot publish.
    pub(super) fn panicked(&mut self, id: i64) -> bool {
        self.0.insert(id);
        self.0.len() >= MOST
    }

    /// Records an answer.
    pub(super) fn answered(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_is_broken_if_it_panics_at_several_messages_in_a_row() {
        let mut panics = Panics::default();
        assert!(!(0..10).any(|_| panics.panicked(1)), "it is one message");
        assert!(!panics.panicked(2) && !panics.panicked(3) && !panics.panicked(4));
        panics.answered();
        assert!(!(1..5).any(|id| panics.panicked(id)), "it has answered meanwhile");
        assert!(panics.panicked(5));
    }
}
