//! The answers of the layer itself: problem details (RFC 9457). None has a text of the application or of the database.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

/// Why the layer answers instead of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Problem {
    /// There is no key, and one is required.
    NoKey,
    /// The key is malformed.
    BadKey,
    /// There are several keys.
    SeveralKeys,
    /// The scope is not known.
    NoScope,
    /// The body has ended early.
    BrokenBody,
    /// The body is larger than the limit.
    LargeBody,
    /// Another request has the key.
    Conflict,
    /// Another request with the key runs.
    Busy,
    /// The key was claimed, and has no reply.
    Unanswered,
    /// The database, or a connection, could not be had in time.
    NotBegun,
    /// It is not known whether the request was committed.
    Unavailable,
    /// It is not known whether a request without a key was committed, so a repeat could run a second time.
    Unknown,
    /// The handler has taken too long.
    Late,
    /// The handler panicked, or its reply or its transaction cannot be kept.
    Failed,
}

impl Problem {
    /// The status, the title, and after how many seconds a repeat makes sense.
    fn parts(self) -> (StatusCode, &'static str, Option<&'static str>) {
        match self {
            Self::NoKey => (StatusCode::BAD_REQUEST, "This request needs the header Idempotency-Key", None),
            Self::BadKey => {
                let title =
                    "The Idempotency-Key must be 1 to 255 visible ASCII characters, alone or as a quoted string";
                (StatusCode::BAD_REQUEST, title, None)
            }
            Self::SeveralKeys => (StatusCode::BAD_REQUEST, "The request has several values of Idempotency-Key", None),
            Self::NoScope => (StatusCode::FORBIDDEN, "The owner of the Idempotency-Key is not known", None),
            Self::BrokenBody => (StatusCode::BAD_REQUEST, "The body of the request cannot be read", None),
            Self::LargeBody => (StatusCode::PAYLOAD_TOO_LARGE, "The body of the request is too large", None),
            Self::Conflict => {
                let title = "Another request had this Idempotency-Key: repeat that one, or use a new key";
                (StatusCode::UNPROCESSABLE_ENTITY, title, None)
            }
            Self::Busy => (StatusCode::CONFLICT, "A request with this Idempotency-Key is being processed", Some("1")),
            Self::Unanswered => {
                (StatusCode::CONFLICT, "This Idempotency-Key was used, and there is no reply to its request", None)
            }
            Self::NotBegun => (StatusCode::SERVICE_UNAVAILABLE, "The request could not begin: repeat it", Some("1")),
            Self::Unavailable => {
                let title = "The request may or may not have been processed: repeat it with the same Idempotency-Key";
                (StatusCode::SERVICE_UNAVAILABLE, title, Some("1"))
            }
            Self::Unknown => (
                StatusCode::SERVICE_UNAVAILABLE,
                "It is not known whether the request was processed, and it had no key",
                None,
            ),
            Self::Late => {
                (StatusCode::SERVICE_UNAVAILABLE, "The request has taken too long, and was stopped", Some("1"))
            }
            Self::Failed => (StatusCode::INTERNAL_SERVER_ERROR, "The request has failed", None),
        }
    }

    /// Returns the answer.
    pub(crate) fn response<B: From<Bytes>>(self) -> Response<B> {
        let (status, title, retry_after) = self.parts();
        let body = serde_json::json!({ "title": title, "status": status.as_u16() }).to_string();
        let mut response = Response::new(B::from(Bytes::from(body)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        response
    }
}
