//! The key under which another system knows a call.

use std::fmt;

use uuid::Uuid;

use crate::{BoxError, Extract, Extraction, Param, permanent};

/// The key under which another system knows a call: a UUID, which says nothing about the message. It is made when the message
/// is stored for a handler, and all calls for these two are made under it. Only a person replaces it, by
/// [`Resolution::CallAgain`](crate::store::Resolution::CallAgain). For a message with a
/// [position](crate::Delivery::position) it is a hash of that and of a random value in the database, so a message that a rewound
/// stream delivers again has the same key, even after its claim is gone.
///
/// As a parameter, it is that of the call, or that of the call which was made for this handler.
///
/// ```
/// # use idem_core::OutboundKey;
/// // A test calls the function with any key.
/// let key = OutboundKey::new("a8098c1a-f86e-11da-bd1a-00112444be1e".parse()?);
/// assert_eq!(key.to_string(), "a8098c1a-f86e-11da-bd1a-00112444be1e");
/// assert_eq!(key.as_str(), "a8098c1a-f86e-11da-bd1a-00112444be1e");
/// # Ok::<(), uuid::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OutboundKey([u8; 36]);

impl OutboundKey {
    /// A key, for a test that makes the call itself.
    pub fn new(id: Uuid) -> Self {
        let mut text = [0; 36];
        id.hyphenated().encode_lower(&mut text);
        Self(text)
    }

    /// Returns the key as text: 36 lower-case characters.
    pub fn as_str(&self) -> &str {
        // The text is ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for OutboundKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for OutboundKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutboundKey({self})")
    }
}

impl Param for OutboundKey {
    const NEEDS_CALL: bool = true;
}

impl<S> Extract<S> for OutboundKey {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let none = || permanent("the handler has no call, and so no key for it: `#[idempotent(.., call = ..)]`");
        from.delivery.rare().call.as_deref().map(|call| Self::new(call.provider_key)).ok_or_else(none)
    }
}
