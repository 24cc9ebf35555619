//! The ids of staged messages, and their lanes.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::Key;

#[cfg(any(feature = "postgres", test))]
use super::Outgoing;

/// What the ids of the messages of one run are derived from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) consumer: &'a str,
    pub(crate) handler: &'a str,
    /// The key of the incoming message; `None` for a batch, which has several.
    pub(crate) key: Option<&'a Key>,
}

impl Origin<'_> {
    /// Returns the id of the message at this place among those that the run stages.
    ///
    /// It must never change, because consumers recognize copies by it: UUIDv8 of the SHA-256 of all parts, each behind
    /// its length.
    pub(crate) fn id(&self, place: usize) -> Uuid {
        let Some(key) = self.key else { return Uuid::now_v7() };
        let mut hash = Sha256::new();
        for part in [self.consumer.as_bytes(), self.handler.as_bytes(), key.as_bytes()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        hash.update((place as u64).to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        Builder::from_custom_bytes(bytes).into_uuid()
    }
}

/// The number of lanes on which an outbox can be spread. It must never change: the order of a key holds in one lane.
#[cfg(any(feature = "postgres", test))]
pub(crate) const LANES: u8 = 64;

/// Returns the lane of a message: that of its key. Without a key, messages are spread by their id.
#[cfg(any(feature = "postgres", test))]
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

    fn origin<'a>(consumer: &'a str, handler: &'a str, key: &'a Key) -> Origin<'a> {
        Origin { consumer, handler, key: Some(key) }
    }

    /// The numbers are part of the contract with consumers: never change them.
    #[test]
    fn an_id_is_the_same_for_ever() {
        let key = Key::of("e-1").unwrap();
        let of = origin("billing", "order_paid", &key);
        assert_eq!(of.id(0).get_version_num(), 8);
        assert_eq!(of.id(0), of.id(0));
        assert_eq!(of.id(0).to_string(), "5b354806-da21-8a6e-ba01-86e64d566f94");
        assert_ne!(of.id(0), of.id(1));
        assert_ne!(of.id(0), origin("billin", "gorder_paid", &key).id(0));
        assert_ne!(of.id(0), origin("billing", "order_paid", &Key::of("e-2").unwrap()).id(0));
    }

    #[test]
    fn the_messages_of_a_batch_have_ids_of_their_own() {
        let of = Origin { consumer: "billing", handler: "order_paid", key: None };
        assert_ne!(of.id(0), of.id(0));
        assert_eq!(of.id(0).get_version_num(), 7);
    }

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
