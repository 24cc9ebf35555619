//! The answer of an external call.

use std::fmt;

use bytes::Bytes;

/// The answer of an external call, as JSON. Its `Debug` shows only the length, because an answer may contain personal data.
#[derive(Clone, PartialEq, Eq)]
pub struct CallAnswer(Bytes);

impl CallAnswer {
    /// These bytes, which are JSON.
    pub fn new(json: impl Into<Bytes>) -> Self {
        Self(json.into())
    }

    /// Returns the JSON.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for CallAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallAnswer({} bytes)", self.0.len())
    }
}
