//! The checks of each request before a view sees it, and the headers of each answer.

use axum::extract::OriginalUri;
use axum::http::header::{CACHE_CONTROL, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;

use crate::Page;

/// Where a request has reached the page, and who has sent it.
#[derive(Debug)]
pub(crate) struct At {
    /// The path in front of all links; empty at the root of the host.
    pub(crate) prefix: String,
    /// The path behind it.
    pub(crate) path: String,
    /// The person, who may change messages; `None` if the page is read-only for the request.
    pub(crate) actor: Option<String>,
}

impl At {
    /// The address of a path of the page. That of the overview has no slash at its end: `Router::nest` has only this one.
    pub(crate) fn link(&self, path: &str) -> String {
        if path == "/" && !self.prefix.is_empty() { self.prefix.clone() } else { format!("{}{path}", self.prefix) }
    }
}

/// The answer to a request that is refused: text, since nothing is known of where it came from.
type Refused = (StatusCode, &'static str);

/// Refuses requests that must not reach a view.
pub(crate) fn admit<S>(page: &Page<S>, parts: &Parts) -> Result<At, Refused> {
    if !is_host_allowed(&page.hosts, parts) {
        let why = "this page does not answer to the host of this request: `.hosts(..)` or `--host` allows one";
        return Err((StatusCode::MISDIRECTED_REQUEST, why));
    }
    let changes = parts.method == Method::POST;
    if changes && !is_own_form(page.origin.as_deref(), &parts.headers) {
        let why = "the form has to be on this page: of an old browser, or without TLS, only `.origin(\"https://..\")` of the service tells";
        return Err((StatusCode::FORBIDDEN, why));
    }
    let actor = page.who.as_ref().and_then(|who| who(parts)).filter(|name| !name.trim().is_empty());
    if changes && actor.is_none() {
        let why = "this page is read-only for you: `.actions(..)` or `--actions` says who may change messages";
        return Err((StatusCode::FORBIDDEN, why));
    }
    let path = parts.uri.path();
    let outer = parts.extensions.get::<OriginalUri>().map_or(path, |uri| uri.0.path()).trim_end_matches('/');
    let nested = outer.strip_suffix(path.trim_end_matches('/')).unwrap_or_default();
    Ok(At { prefix: format!("{}{nested}", page.prefix), path: path.to_owned(), actor })
}

const LOOPBACK: [&str; 3] = ["127.0.0.1", "[::1]", "localhost"];

/// Any port is right: the browser has connected to it. Each host that the request names has to be in the list.
fn is_host_allowed(hosts: &[String], parts: &Parts) -> bool {
    // The address of HTTP/2; a proxy sends it by HTTP/1.1 as well.
    let address = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut named = parts.headers.get_all(HOST).iter().map(HeaderValue::as_bytes).chain(address).peekable();
    let is_allowed = |name: &[u8]| {
        let Ok(authority) = Authority::try_from(name) else { return false };
        let mut allowed = LOOPBACK.into_iter().chain(hosts.iter().map(String::as_str));
        allowed.any(|allowed| allowed.eq_ignore_ascii_case(authority.host()))
    };
    named.peek().is_some() && named.all(is_allowed)
}

/// A form of another site, also of one on the same machine, must not change messages in the name of the person who looks at it.
fn is_own_form(own: Option<&str>, headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter().peekable();
    let mut origins = headers.get_all(ORIGIN).iter().peekable();
    if sites.peek().is_some() {
        return sites.all(|site| site == "same-origin");
    }
    origins.peek().is_some() && origins.all(|origin| own.is_some_and(|own| origin == own))
}

/// Sets the headers of an answer, also of one that no view has made.
pub(crate) async fn with_headers(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

const HEADERS: [(&str, &str); 4] = [
    // `form-action` and `base-uri` do not fall back to `default-src`.
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    // With `no-referrer`, browsers send `Origin: null`.
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];
