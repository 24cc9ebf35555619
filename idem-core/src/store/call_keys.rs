//! The keys of external calls: hashes in the form of random UUIDs, so that a restored backup leads to the same keys again.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use super::Identity;

/// Returns the first key of the call for a message from a stream. `namespace` is that of its handler, `call` the name of the
/// call, and `at` the source and the position of the message.
///
/// A rewound stream delivers the message at the same position. So it has the same key after a restored backup, and the
/// provider recognizes a call that was made since. No other message is ever at that position
/// ([`with_position`](crate::Delivery::with_position)). So one with the same key and content, which comes after the claim of
/// this one was pruned, has another key and its own effect. The name of the call is part of the hash because another call is
/// another effect; the key and the fingerprint are, because a handler can make several local messages of one message.
pub(crate) fn first_provider_key(namespace: Uuid, call: &str, at: (&str, &str), message: &Identity) -> Uuid {
    let (source, position) = (at.0.as_bytes(), at.1.as_bytes());
    // Without the recipe: a function that is only renamed must not change the key.
    let fingerprint = message.fingerprint.as_bytes();
    let fingerprint = fingerprint.get(..16).unwrap_or(fingerprint);
    let parts = [call.as_bytes(), source, position, message.key.as_bytes(), fingerprint];
    let digest = digest("idem: the first key of an external call", namespace, &parts, &[]);
    Builder::from_random_bytes(digest).into_uuid()
}

/// Returns the key under which a message calls once a person has decided, by
/// [`Resolution::CallAgain`](super::Resolution::CallAgain), that no call under `provider_key` had an effect.
///
/// It is derived from that key, and is not random: if a backup from before is restored, and the person decides so once more, the
/// provider recognizes a call that was made under it since. It must never change: the first 16 bytes of the SHA-256 of a text
/// and the key, in the form of a random UUID (version 4), since some providers accept no other.
///
/// ```
/// # use idem_core::store::next_provider_key;
/// let key = "a8098c1a-f86e-11da-bd1a-00112444be1e".parse()?;
/// assert_eq!(next_provider_key(key), next_provider_key(key));
/// assert_ne!(next_provider_key(key), key);
/// # Ok::<(), uuid::Error>(())
/// ```
pub fn next_provider_key(provider_key: Uuid) -> Uuid {
    let digest = digest("idem: the next key of an external call", provider_key, &[], &[]);
    Builder::from_random_bytes(digest).into_uuid()
}

/// Returns the first 16 bytes of the SHA-256 of a text, a UUID, further parts, each of these behind its length, and a rest.
pub(crate) fn digest(text: &str, from: Uuid, parts: &[&[u8]], rest: &[u8]) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(text);
    hash.update(from.as_bytes());
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.update(rest);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::HandlerId;
    use crate::{Fingerprint, Key};

    const SEVEN: Uuid = Uuid::from_u128(7);
    const AT: (&str, &str) = ("ORDERS", "ORDERS/7@1700000000000000000");

    fn message(handler: i32, key: &str, payload: &str) -> Identity {
        let (key, fingerprint) = (Key::of(key).unwrap(), Fingerprint::of(payload.as_bytes()));
        Identity { handler: HandlerId(handler), key, fingerprint }
    }

    /// Messages that come again depend on the number: never change it.
    #[test]
    fn the_first_key_is_the_same_for_ever() {
        let paid = message(1, "e-1", "{}");
        let first = first_provider_key(SEVEN, "charge", AT, &paid);
        assert_eq!(first.to_string(), "b78dead2-8a48-4a62-8b4a-e58ad28eec56");
        assert_eq!(first.get_version_num(), 4, "some providers take no other");
        assert_eq!(first_provider_key(SEVEN, "charge", AT, &message(2, "e-1", "{}")), first, "its number may change");
    }

    #[test]
    fn the_first_key_is_that_of_one_message_one_handler_and_one_call() {
        let paid = message(1, "e-1", "{}");
        let keys = [
            first_provider_key(SEVEN, "charge", AT, &paid),
            first_provider_key(Uuid::nil(), "charge", AT, &paid),
            first_provider_key(SEVEN, "refund", AT, &paid),
            first_provider_key(SEVEN, "charge", ("ORDERS_EU", AT.1), &paid),
            first_provider_key(SEVEN, "charge", ("ORDERS", "ORDERS/8@1700000000000000000"), &paid),
            first_provider_key(SEVEN, "charge", ("ORDERS", "ORDERS/7@1800000000000000000"), &paid),
            first_provider_key(SEVEN, "charge", AT, &message(1, "e-2", "{}")),
            first_provider_key(SEVEN, "charge", AT, &message(1, "e-1", "[]")),
            // No byte moves from one part to the next.
            first_provider_key(SEVEN, "chargeO", ("RDERS", AT.1), &paid),
        ];
        let distinct: std::collections::HashSet<Uuid> = keys.into_iter().collect();
        assert_eq!(distinct.len(), keys.len(), "{keys:?}");
    }

    /// Restored rows depend on the number: never change it.
    #[test]
    fn the_next_key_is_the_same_for_ever() {
        let next = next_provider_key(SEVEN);
        assert_eq!(next.to_string(), "0eec5251-338c-4502-87d1-8d9c76dbda50");
        assert_eq!(next.get_version_num(), 4);
        assert_ne!(next, next_provider_key(Uuid::from_u128(8)));
    }
}
