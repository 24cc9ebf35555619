//! The reply to a request: what is kept of it, and how it is sent again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, LINK, LOCATION, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode};
use idem_core::store::StoredReply;

use crate::problem::Problem;

/// The header of a reply that is sent again.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The headers that are kept by default. Without its encoding, a compressed body would be another one.
pub(crate) const KEPT: [HeaderName; 5] = [CONTENT_TYPE, CONTENT_ENCODING, LOCATION, ETAG, LINK];

/// The reply to the current request, as its handler takes it.
///
/// By default, replies with a status of 2xx and 3xx are kept, but not 307 and 308: with these, a client sends the same request and
/// its key to another address. Any other reply undoes what the handler has written, and the same key may be used for a corrected
/// request.
///
/// ```
/// # #[cfg(feature = "axum")] mod example {
/// # use http::StatusCode; use idem_http::Reply;
/// async fn create(reply: Reply) -> StatusCode {
///     // The refusal is final: a repeat gets it again, and what was written with it is committed.
///     reply.keep();
///     StatusCode::PAYMENT_REQUIRED
/// }
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Reply(Arc<AtomicBool>);

impl Reply {
    /// Keeps the reply whatever its status is, and commits what the handler has written.
    pub fn keep(&self) {
        self.0.store(true, Relaxed);
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Whether the reply with this status is kept, unless its handler says more.
pub(crate) fn is_kept_by_default(status: StatusCode) -> bool {
    let goes_on = matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
    status.is_success() || (status.is_redirection() && !goes_on)
}

/// Returns what is kept of a reply: a line for each header that is allowed, and never a cookie, which is for one client.
pub(crate) fn stored(status: StatusCode, headers: &HeaderMap, kept: &[HeaderName], body: &Bytes) -> StoredReply {
    let mut block = Vec::new();
    for (name, value) in headers.iter().filter(|(name, _)| kept.contains(*name) && **name != SET_COOKIE) {
        block.extend_from_slice(name.as_str().as_bytes());
        block.extend_from_slice(b": ");
        block.extend_from_slice(value.as_bytes());
        block.push(b'\n');
    }
    StoredReply { status: status.as_u16(), headers: block.into(), body: body.clone() }
}

/// Returns the reply again.
pub(crate) fn again<B: From<Bytes>>(reply: StoredReply) -> Response<B> {
    let Ok(status) = StatusCode::from_u16(reply.status) else { return Problem::Unanswered.response() };
    let mut response = Response::new(B::from(reply.body));
    *response.status_mut() = status;
    for line in reply.headers.split(|byte| *byte == b'\n') {
        let Some(colon) = line.windows(2).position(|bytes| bytes == b": ") else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(&line[colon + 2..])) {
            response.headers_mut().append(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_sent_again_with_the_headers_that_are_allowed() {
        let headers = [
            (CONTENT_TYPE, HeaderValue::from_static("text/plain")),
            (CONTENT_ENCODING, HeaderValue::from_static("gzip")),
            (LINK, HeaderValue::from_static("<a>; rel=\"x: y\"")),
            (LINK, HeaderValue::from_static("<b>")),
            (ETAG, HeaderValue::from_static("")),
            (SET_COOKIE, HeaderValue::from_static("session=secret")),
            (http::header::SERVER, HeaderValue::from_static("axum")),
        ];
        let kept = [&KEPT[..], &[SET_COOKIE]].concat();
        let stored =
            stored(StatusCode::CREATED, &headers.iter().cloned().collect(), &kept, &Bytes::from_static(b"\0x"));
        assert!(!format!("{stored:?}").contains("text/plain"));
        let mut response: Response<Bytes> = again(stored);
        assert_eq!((response.status(), &response.body()[..]), (StatusCode::CREATED, &b"\0x"[..]));
        assert_eq!(response.headers_mut().remove(REPLAYED), Some(HeaderValue::from_static("true")));
        let expected: HeaderMap = headers.into_iter().take(5).collect();
        assert_eq!(response.headers(), &expected);
    }
}
