//! What an inbox row has kept of the external call of its message.

use bytes::Bytes;
use uuid::Uuid;

/// What an inbox row has kept of the external call of its message.
#[derive(Debug, Clone)]
pub(crate) struct KeptCall {
    /// The key under which the provider knows it.
    pub(crate) outbound: Uuid,
    /// The answer, as JSON.
    pub(crate) answer: Option<Bytes>,
}
