//! The key and the message of a step.

use std::fmt::Write;

use idem_core::store::Identity;
use idem_core::{Fingerprint, Key};
use uuid::Uuid;

/// The key and the message of a step, as a trace has them.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) key: String,
    pub(crate) message: String,
}

impl Subject {
    pub(crate) fn new(key: &Key, fingerprint: &Fingerprint) -> Self {
        let bytes = fingerprint.as_bytes();
        Self { message: Self::hex(&bytes[..bytes.len().min(6)]), ..Self::of_key(key) }
    }

    /// A message of an outbox, whose outbox is not known.
    pub(crate) fn of_outgoing(id: Uuid) -> Self {
        Self { key: String::new(), message: id.simple().to_string() }
    }

    /// Bytes as a word.
    pub(crate) fn hex(bytes: &[u8]) -> String {
        let mut hex = String::new();
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
        }
        hex
    }

    /// All messages of a key.
    pub(crate) fn of_key(key: &Key) -> Self {
        let key = String::from_utf8_lossy(key.as_bytes()).replace(['\t', '\n', '\r'], " ");
        Self { key, message: String::new() }
    }

    /// The subject of a message; `None` if it has no key.
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        identity.has_key().then(|| Self::new(&identity.key, &identity.fingerprint))
    }

    /// No particular key.
    pub(super) fn any() -> Self {
        Self { key: String::new(), message: String::new() }
    }
}
