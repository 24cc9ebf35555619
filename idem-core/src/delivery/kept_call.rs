//! What an inbox row has kept of the external call of its message.

use std::time::SystemTime;

use uuid::Uuid;

use crate::store::CallAnswer;

/// What an inbox row has kept of the external call of its message.
#[derive(Clone)]
pub(crate) struct KeptCall {
    /// The key under which the provider knows it.
    pub(crate) provider_key: Uuid,
    pub(crate) answer: Option<CallAnswer>,
    /// Its name, and when the first one was about to begin, if one was.
    pub(crate) name: Option<String>,
    pub(crate) called_at: Option<SystemTime>,
}
