//! How a call failed.

use crate::BoxError;

/// Why a call has no answer. Any error becomes one by `?`, and then leaves it in doubt whether the call had an effect: the
/// request may have arrived, although its answer did not. [`permanent`](crate::permanent) and
/// [`retry_after`](crate::retry_after) keep their meaning.
///
/// ```
/// # use idem_core::{BoxError, CallError};
/// # struct Answer { status: u16, body: String }
/// # async fn post() -> Result<Answer, std::io::Error> { Ok(Answer { status: 200, body: String::new() }) }
/// async fn charge() -> Result<String, CallError> {
///     let answer = post().await?;
///     match answer.status {
///         // Certainly without effect: it is tried again, and nothing is in doubt.
///         429 => Err(CallError::not_done("busy")),
///         // A request with this key is in progress, for example one that the client has repeated: it may have an effect.
///         409 => Err("in progress".into()),
///         // The provider has stored this answer for the key.
///         400..500 => Err(CallError::permanent(format!("refused: {}", answer.body))),
///         200 => Ok(answer.body),
///         other => Err(format!("the status {other}").into()),
///     }
/// }
/// # let _ = charge();
/// ```
#[derive(Debug)]
pub struct CallError {
    doubt: Doubt,
    error: BoxError,
}

/// What is known about the effect of a call that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It may have had one.
    Unknown,
    /// It certainly had none.
    NotDone,
    /// It may have had one, and no further call under the key can succeed.
    Permanent,
}

impl CallError {
    /// The call certainly had no effect, and can be tried again: the provider was busy, or the request never left, also not in a
    /// first try of a client that repeats requests by itself. If it is the first call under its key, no call counts as begun.
    pub fn not_done(error: impl Into<BoxError>) -> Self {
        Self { doubt: Doubt::NotDone, error: error.into() }
    }

    /// No further call under this key can succeed, for example because the provider has stored an error for it. The message
    /// is a dead letter, `permanent`. After a look at the provider, [`Inbox::resolve`](crate::Inbox::resolve) gives it an
    /// answer or another key.
    pub fn permanent(error: impl Into<BoxError>) -> Self {
        Self { doubt: Doubt::Permanent, error: error.into() }
    }

    pub(crate) fn into_parts(self) -> (Doubt, BoxError) {
        (self.doubt, self.error)
    }
}

impl<E: Into<BoxError>> From<E> for CallError {
    fn from(error: E) -> Self {
        Self { doubt: Doubt::Unknown, error: error.into() }
    }
}
