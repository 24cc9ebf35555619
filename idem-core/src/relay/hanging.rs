//! The destinations that hang.

use std::collections::HashMap;

use tokio::time::Instant;

/// How many are remembered. A message names its destination, so there may be any number.
const MOST: usize = 1000;

/// The destinations of which the last answer did not come in time.
#[derive(Debug, Default)]
pub(super) struct Hanging {
    late: HashMap<String, Instant>,
}

impl Hanging {
    /// Records that a message to this destination got no answer in time. Beyond the limit, the oldest one is forgotten.
    pub(super) fn late(&mut self, destination: &str, now: Instant) {
        if self.late.insert(destination.to_owned(), now).is_none() && self.late.len() > MOST {
            let oldest = self.late.iter().min_by_key(|(_, late)| **late).map(|(destination, _)| destination.clone());
            oldest.and_then(|oldest| self.late.remove(&oldest));
        }
    }

    /// Records an answer.
    pub(super) fn answered(&mut self, destination: &str) {
        self.late.remove(destination);
    }

    pub(super) fn contains(&self, destination: &str) -> bool {
        self.late.contains_key(destination)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_destination_hangs_until_it_answers() {
        let (mut hanging, now) = (Hanging::default(), Instant::now());
        hanging.late("a", now);
        hanging.late("b", now);
        hanging.answered("a");
        assert!(!hanging.contains("a") && hanging.contains("b"));
    }

    #[tokio::test]
    async fn a_bounded_number_is_remembered() {
        let (mut hanging, now) = (Hanging::default(), Instant::now());
        for number in 0..=MOST {
            hanging.late(&number.to_string(), now + Duration::from_millis(number as u64));
        }
        assert_eq!(hanging.late.len(), MOST);
        assert!(!hanging.contains("0") && hanging.contains("1") && hanging.contains(&MOST.to_string()));
    }
}
