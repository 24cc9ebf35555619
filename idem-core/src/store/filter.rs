//! Which inbox rows an operator means.

use crate::{Key, Reason};

/// Which rows to list or to replay. By default all dead rows; each field that is set leaves fewer.
///
/// ```
/// # use idem_core::{Reason, store::Filter};
/// let filter = Filter::new().handler("order_paid").reason(Reason::Exhausted);
/// let one = Filter::new().key("9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2");
/// assert_eq!(one.keys().map(|keys| keys.len()), Some(1), "the UUID, in whichever notation");
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Filter {
    /// Lists scheduled rows instead of dead ones.
    pub scheduled: bool,
    /// Lists only rows of this handler.
    pub handler: Option<String>,
    /// Lists only rows that died for this reason.
    pub reason: Option<Reason>,
    /// Lists only rows with this key, written as the log shows it: its text, a UUID, `(part, part)` for a composite key, or
    /// `0x` and its bytes in hexadecimal.
    pub key: Option<String>,
}

impl Filter {
    /// All dead rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Scheduled rows instead of dead ones.
    pub fn scheduled(self) -> Self {
        Self { scheduled: true, ..self }
    }

    /// Only rows of this handler.
    pub fn handler(self, name: impl Into<String>) -> Self {
        Self { handler: Some(name.into()), ..self }
    }

    /// Only rows that died for this reason.
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Only rows with this key, as the log writes it.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// The keys that the text of [`key`](Self::key) may stand for, for a store; `None` if any key will do.
    pub fn keys(&self) -> Option<Vec<Key>> {
        self.key.as_deref().map(crate::key::text::keys)
    }
}
