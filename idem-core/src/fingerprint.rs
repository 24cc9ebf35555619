//! Telling a copy of a message from another message under the same key.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::Delivery;

/// What a message looked like: kept beside its claim, so that a second delivery under the same key is known as a copy
/// (equal) or as a conflict (not equal).
///
/// By default it is the first 16 bytes of the SHA-256 of the raw payload, which an operator can compute in SQL too. A
/// producer that serialises anew when it publishes again, with another order of fields or a fresh timestamp, would make
/// conflicts of its copies: give such a handler a fingerprint of its own, or [`Fingerprint::none`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    // Zero behind its length, so that equal ones are equal as a whole.
    bytes: [u8; LENGTH],
    len: u8,
}

/// The longest fingerprint, in bytes.
const LENGTH: usize = 16;

impl Fingerprint {
    /// The fingerprint of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::short(&Sha256::digest(bytes)[..LENGTH])
    }

    /// The fingerprint of this delivery's payload. No payload at all is not the same as an empty one, and its word, being
    /// shorter than a hash, is that of no payload.
    pub(crate) fn of_delivery(delivery: &Delivery) -> Self {
        if delivery.is_tombstone() { Self::short(b"tombstone") } else { Self::of(delivery.payload()) }
    }

    /// Equal for all messages: every delivery under a known key is a copy. A key that is used for two different
    /// messages then loses the second one silently.
    pub fn none() -> Self {
        Self::short(&[])
    }

    /// A fingerprint as a store has kept it, or one of a user's own. What is longer than 16 bytes is hashed.
    pub fn stored(bytes: &[u8]) -> Self {
        if bytes.len() > LENGTH { Self::of(bytes) } else { Self::short(bytes) }
    }

    /// Of at most so many bytes.
    fn short(text: &[u8]) -> Self {
        let mut bytes = [0; LENGTH];
        let len = text.len().min(LENGTH);
        bytes[..len].copy_from_slice(&text[..len]);
        Self { bytes, len: len as u8 }
    }

    /// The fingerprint as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_what_is_read() {
        let (tombstone, hash) = (Fingerprint::short(b"tombstone"), Fingerprint::of(b"{}"));
        for fingerprint in [Fingerprint::none(), tombstone, hash] {
            assert_eq!(Fingerprint::stored(fingerprint.as_bytes()), fingerprint);
        }
        assert_eq!(hash.as_bytes().len(), 16);
        assert_ne!(Fingerprint::stored(&[0]), Fingerprint::none());
    }

    #[test]
    fn a_long_one_differs_from_another_that_begins_alike() {
        assert_ne!(Fingerprint::stored(&[[1; 16], [2; 16]].concat()), Fingerprint::stored(&[1; 32]));
    }
}
