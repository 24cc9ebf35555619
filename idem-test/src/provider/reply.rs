//! The answer to a request.

/// The answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reply {
    /// The HTTP status: 200 for a charge, 409 if a request with this key is in progress, 422 if the key belongs to another body,
    /// 429 if the provider is busy, 500 for an error.
    pub status: u16,
    /// The number of the charge, or an error.
    pub body: String,
}

impl Reply {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self { status, body: body.into() }
    }
}
