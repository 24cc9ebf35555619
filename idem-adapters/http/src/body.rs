//! The bodies of requests and replies, and the fingerprint of a request.

use bytes::Bytes;
use http::Uri;
use http::request::Parts;
use http_body::Body;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use idem_core::{BoxError, Fingerprint};

use crate::problem::Problem;

/// Reads the body of a request. Cancel safe: nothing has begun.
pub(crate) async fn read<B>(body: B, limit: usize) -> Result<Bytes, Problem>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(Problem::LargeBody);
    }
    match Limited::new(body, limit).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Problem::LargeBody),
        Err(error) => {
            tracing::debug!(error = %error, "the body of a request cannot be read");
            Err(Problem::BrokenBody)
        }
    }
}

/// Reads the body of a reply, whose size has to be known: it is kept whole, and a stream might never end.
///
/// # Errors
/// Why it cannot be kept, for the log.
pub(crate) async fn whole<B>(body: B, limit: usize) -> Result<Bytes, String>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match body.size_hint().exact() {
        None => {
            Err("its body is a stream, whose size is not known: answer with the whole body, or with a location of it, \
                     or take this route out of the layer"
                .to_owned())
        }
        Some(size) if size > limit as u64 => {
            Err(format!("its body has {size} bytes, and at most {limit} are kept: answer with a location of it"))
        }
        Some(_) => match Limited::new(body, limit).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) => Err(format!("its body cannot be read: {error}")),
        },
    }
}

/// Returns the fingerprint of a request: its method, its path, its query and its body. Each part is preceded by its length, so that
/// no byte can move from one part to the next.
pub(crate) fn fingerprint(parts: &Parts, body: &Bytes) -> Fingerprint {
    let uri = uri(parts);
    let body = Fingerprint::of(body);
    let query = uri.query().map_or(&b""[..], str::as_bytes);
    let mut whole = Vec::with_capacity(256);
    for part in [parts.method.as_str().as_bytes(), uri.path().as_bytes(), query, body.as_bytes()] {
        whole.extend_from_slice(&(part.len() as u64).to_be_bytes());
        whole.extend_from_slice(part);
    }
    Fingerprint::of(&whole)
}

/// Returns the address that the client has sent: a nested router removes its prefix, and two routes would look alike.
fn uri(parts: &Parts) -> &Uri {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::OriginalUri(uri)) = parts.extensions.get() {
        return uri;
    }
    &parts.uri
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &str, uri: &str, body: &'static str) -> Option<Fingerprint> {
        let (parts, ()) = http::Request::builder().method(method).uri(uri).body(()).ok()?.into_parts();
        Some(fingerprint(&parts, &Bytes::from_static(body.as_bytes())))
    }

    #[test]
    fn each_part_distinguishes_requests() {
        let all = [
            of("POST", "/payments", "{}"),
            of("PATCH", "/payments", "{}"),
            of("POST", "/payments/7", "{}"),
            of("POST", "/payments?dry", "{}"),
            of("POST", "/payments", "[]"),
            of("POST", "/payments", ""),
            of("POST", "/paymentsdry", "{}"),
        ];
        assert!(all.iter().all(Option::is_some));
        let different: std::collections::HashSet<_> = all.iter().flatten().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(of("POST", "/payments", "{}"), of("POST", "/payments", "{}"));
    }
}
