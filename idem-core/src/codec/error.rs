//! Why a delivery was not decoded.

use crate::BoxError;

/// Why a codec did not decode a delivery.
///
/// Any error becomes one by `?`, as does a text by `into`: the delivery can never be decoded then. So it is no
/// [`std::error::Error`] itself.
#[derive(Debug)]
#[non_exhaustive]
pub enum DecodeError {
    /// It can never be decoded, and becomes a dead letter with reason `undecodable` and this error.
    Undecodable(BoxError),
    /// It can be decoded once [`Codec::prepare`](crate::Codec::prepare) has fetched what that takes.
    Unprepared,
}

impl DecodeError {
    /// The delivery can never be decoded.
    pub fn undecodable(error: impl Into<BoxError>) -> Self {
        Self::Undecodable(error.into())
    }

    /// The delivery can be decoded once [`Codec::prepare`](crate::Codec::prepare) has fetched what that takes.
    pub fn unprepared() -> Self {
        Self::Unprepared
    }
}

impl<E: Into<BoxError>> From<E> for DecodeError {
    fn from(error: E) -> Self {
        Self::undecodable(error)
    }
}

/// Why what a delivery needs to be decoded could not be fetched.
///
/// Nothing becomes one by `?`: whether a failure makes dead letters is to be said each time.
#[derive(Debug)]
#[non_exhaustive]
pub enum PrepareError {
    /// The message is at fault, such as one that names a schema which does not exist: it can never be decoded, and becomes a
    /// dead letter with reason `undecodable` and this error.
    Undecodable(BoxError),
    /// What was asked is at fault: it is away, or refuses everybody. The message is held, unacked or in the inbox, and tried
    /// again, later each time, up to once a minute. It is charged with no attempt and never becomes a dead letter by this.
    Unavailable(BoxError),
}

impl PrepareError {
    /// The message is at fault: it can never be decoded.
    pub fn undecodable(error: impl Into<BoxError>) -> Self {
        Self::Undecodable(error.into())
    }

    /// What was asked is at fault: to be tried again later.
    pub fn unavailable(error: impl Into<BoxError>) -> Self {
        Self::Unavailable(error.into())
    }
}
