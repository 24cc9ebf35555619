//! The lanes of a message, over which its relays share the work.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Outgoing;

/// The number of lanes on which an outbox can be spread. It must never change: the order of a key holds in one lane.
pub(crate) const LANES: u8 = 64;

/// Returns the lane of a message: that of its key. Without a key, messages are spread by their id.
pub(crate) fn lane(message: &Outgoing, id: Uuid) -> u8 {
    let byte = match &message.key {
        Some(key) => Sha256::digest(key.as_bytes())[0],
        None => id.as_bytes()[15],
    };
    byte % LANES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_one_lane_and_messages_without_a_key_are_spread() {
        let of_key = |key: i64, id| lane(&Outgoing::new("a", "").key(key), id);
        assert_eq!(of_key(7, Uuid::nil()), of_key(7, Uuid::max()));
        assert_eq!((of_key(7, Uuid::nil()), of_key(8, Uuid::nil())), (57, 44));
        let spread: std::collections::BTreeSet<u8> =
            (0..1000).map(|_| lane(&Outgoing::new("a", ""), Uuid::now_v7())).collect();
        assert_eq!(spread.len(), usize::from(LANES));
    }
}
