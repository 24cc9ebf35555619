//! The key of a call that a person lets be made under another key.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// Returns the key under which a message calls once a person has decided, by
/// [`Resolution::CallAgain`](super::Resolution::CallAgain), that no call under `outbound` had an effect.
///
/// It follows from that key, and is not random: if a backup from before is restored, and the person decides so once more, the
/// provider recognizes a call that was made under it since. It must never change: the first 16 bytes of the SHA-256 of a text
/// and the key, in the form of a random UUID (version 4), since some providers take no other.
///
/// ```
/// # use idem_core::store::next_outbound;
/// let key = "a8098c1a-f86e-11da-bd1a-00112444be1e".parse()?;
/// assert_eq!(next_outbound(key), next_outbound(key));
/// assert_ne!(next_outbound(key), key);
/// # Ok::<(), uuid::Error>(())
/// ```
pub fn next_outbound(outbound: Uuid) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"idem: the next key of an external call");
    hash.update(outbound.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Restored rows depend on the number: never change it.
    #[test]
    fn the_next_key_is_the_same_for_ever() {
        let next = next_outbound(Uuid::from_u128(7));
        assert_eq!(next.to_string(), "0eec5251-338c-4502-87d1-8d9c76dbda50");
        assert_eq!(next.get_version_num(), 4);
        assert_ne!(next, next_outbound(Uuid::from_u128(8)));
    }
}
