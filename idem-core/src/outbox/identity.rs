//! The ids of staged messages.

use uuid::{Builder, Uuid};

use crate::Key;
use crate::store::digest;

/// What the ids of the messages of one run are derived from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// That of the outbox, which differs between schemas.
    pub(crate) namespace: Uuid,
    pub(crate) consumer: &'a str,
    pub(crate) handler: &'a str,
    /// The key of the incoming message; `None` for a batch, which has several.
    pub(crate) key: Option<&'a Key>,
}

impl Origin<'_> {
    /// Returns the id of the message at this place among those that the run stages.
    ///
    /// It must never change, because consumers recognize copies by it: UUIDv8 of the SHA-256 of the namespace
    /// and of all other parts, each of these behind its length.
    pub(crate) fn id(&self, place: usize) -> Uuid {
        let Some(key) = self.key else { return Uuid::now_v7() };
        let parts = [self.consumer.as_bytes(), self.handler.as_bytes(), key.as_bytes()];
        let digest = digest("", self.namespace, &parts, &(place as u64).to_be_bytes());
        Builder::from_custom_bytes(digest).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin<'a>(consumer: &'a str, handler: &'a str, key: &'a Key) -> Origin<'a> {
        Origin { namespace: Uuid::from_u128(7), consumer, handler, key: Some(key) }
    }

    /// The numbers are part of the contract with consumers: never change them.
    #[test]
    fn an_id_is_the_same_for_ever() {
        let key = Key::of("e-1").unwrap();
        let of = origin("billing", "order_paid", &key);
        assert_eq!(of.id(0).get_version_num(), 8);
        assert_eq!(of.id(0), of.id(0));
        assert_eq!(of.id(0).to_string(), "e127522f-f3b1-894e-9135-b9f015f466eb");
        assert_ne!(of.id(0), of.id(1));
        assert_ne!(of.id(0), Origin { namespace: Uuid::from_u128(8), ..of }.id(0), "of another schema");
        assert_ne!(of.id(0), origin("billin", "gorder_paid", &key).id(0));
        assert_ne!(of.id(0), origin("billing", "order_paid", &Key::of("e-2").unwrap()).id(0));
    }

    #[test]
    fn the_messages_of_a_batch_have_ids_of_their_own() {
        let of = Origin { namespace: Uuid::nil(), consumer: "billing", handler: "order_paid", key: None };
        assert_ne!(of.id(0), of.id(0));
        assert_eq!(of.id(0).get_version_num(), 7);
    }
}
