//! Telling a copy of a message from another message under the same key.

use sha2::{Digest, Sha256};

use crate::Delivery;

/// What a message looked like: kept beside its claim, so that a second delivery under the same key is known as a copy
/// (equal) or as a conflict (not equal).
///
/// By default it is the first 16 bytes of the SHA-256 of the raw payload, which an operator can compute in SQL too. A
/// producer that serialises anew when it publishes again, with another order of fields or a fresh timestamp, would make
/// conflicts of its copies: give such a handler a fingerprint of its own, or [`Fingerprint::none`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(Vec<u8>);

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes)[..16].to_vec())
    }

    /// The fingerprint of this delivery's payload. No payload at all is not the same as an empty one, and its word, being
    /// shorter than a hash, is that of no payload.
    pub(crate) fn of_delivery(delivery: &Delivery) -> Self {
        if delivery.is_tombstone() { Self(b"tombstone".to_vec()) } else { Self::of(delivery.payload()) }
    }

    /// Equal for all messages: every delivery under a known key is a copy. A key that is used for two different
    /// messages then loses the second one silently.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// A fingerprint as a store has kept it.
    pub fn stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The fingerprint as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
