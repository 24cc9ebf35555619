//! The key and the message of a step.

use std::fmt::Write;

use idem_core::store::Identity;
use idem_core::{Fingerprint, Key};

/// The key and the message of a step, as a trace has them.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(super) key: String,
    pub(super) message: String,
}

impl Subject {
    pub(crate) fn new(key: &Key, fingerprint: &Fingerprint) -> Self {
        let mut message = String::new();
        for byte in fingerprint.as_bytes().iter().take(6) {
            // Writing to a string cannot fail.
            let _ = write!(message, "{byte:02x}");
        }
        Self { message, ..Self::of_key(key) }
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
