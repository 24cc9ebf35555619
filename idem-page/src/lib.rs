//! The page for people on call: rates, dead letters by cause, one message, and why it ran or did not.
//!
//! It is a router of [axum], to be nested behind the service's own authentication. It is rendered on the server, works without
//! scripts, and loads nothing but its own stylesheet. Without further options it is read-only, hides payloads, and answers only
//! on the loopback host.
//!
//! ```no_run
//! # use idem_core::Store;
//! # fn service<S: Store>(store: &S) -> axum::Router {
//! let page = idem_page::router(store)
//!     .hosts(["ops.example.com"])
//!     .actions(|parts| parts.headers.get("x-forwarded-user")?.to_str().ok().map(str::to_owned));
//! axum::Router::new().nest_service("/ops/idem", page.into_router())
//! # }
//! ```
//!
//! Applications depend on the facade `idem-rs`, where this crate is `idem::page`.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod change;
mod dead;
mod guard;
mod layout;
mod lists;
mod message;
mod overview;
mod text;
mod visit;
mod why;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::middleware::map_response;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use idem_core::Store;

use crate::visit::{Failure, View, Visit};

/// The page of a store, to be nested behind the service's own authentication. It is read-only, without payloads, and answers
/// on loopback hosts only, until the methods of [`Page`] say otherwise.
///
/// ```no_run
/// # fn service<S: idem_core::Store>(store: &S) -> axum::Router {
/// axum::Router::new().nest_service("/ops/idem", idem_page::router(store).into_router())
/// # }
/// ```
///
/// Who reaches the page sees the names, keys and errors of messages: it has no login of its own.
pub fn router<S: Store>(store: &S) -> Page<S> {
    let (hosts, prefix) = (Vec::new(), String::new());
    Page { store: store.clone(), hosts, origin: None, prefix, consumer: None, payloads: false, who: None }
}

/// Names the person of a request.
type Who = Box<dyn Fn(&Parts) -> Option<String> + Send + Sync>;

/// The page of a store, and what it may show and do.
#[must_use = "a page is served as a router: `.into_router()`"]
pub struct Page<S> {
    store: S,
    hosts: Vec<String>,
    origin: Option<String>,
    prefix: String,
    consumer: Option<String>,
    payloads: bool,
    who: Option<Who>,
}

impl<S: Store> Page<S> {
    /// Lets people replay and discard dead letters. Calls are resolved by the command.
    ///
    /// `who` names the person of a request, by what the authentication in front has put into it: a header or an extension. The
    /// name is stored with each change, and cut to 200 characters. For `None` the page is read-only, and the answer to a change
    /// is 403. A header that the browser can set itself is no proof: the proxy has to remove it from what comes from outside.
    ///
    /// Each change is asked for once. It is refused unless the browser says by `Sec-Fetch-Site` that the form was on this page,
    /// or by `Origin`: [`origin`](Self::origin).
    pub fn actions(mut self, who: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static) -> Self {
        self.who = Some(Box::new(who));
        self
    }

    /// Shows payloads, the values of headers and the answers of calls, and searches in payloads. Values of members and headers
    /// whose names mean secrets stay hidden ([`is_secret`](idem_core::operator::is_secret)).
    pub fn payloads(mut self) -> Self {
        self.payloads = true;
        self
    }

    /// Answers also on these hosts, each without a port. The loopback names `127.0.0.1`, `[::1]` and `localhost` are always
    /// answered. A request for another host is refused (421), since a foreign site whose name leads to this machine could read
    /// the page otherwise (DNS rebinding).
    pub fn hosts<I: Into<String>>(mut self, names: impl IntoIterator<Item = I>) -> Self {
        self.hosts.extend(names.into_iter().map(Into::into));
        self
    }

    /// The origin of the page, as `https://ops.example.com`: accepts changes also of browsers that send no `Sec-Fetch-Site`,
    /// if their `Origin` is this one. They are those of before 2023, and all of them on a page without TLS that is not on the
    /// loopback host.
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origin = Some(origin.into());
        self
    }

    /// The path that a proxy in front takes away, such as `/admin`. A path that axum takes away by nesting is known.
    pub fn prefix(mut self, path: impl Into<String>) -> Self {
        let path = path.into();
        let path = path.trim_matches('/');
        self.prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
        self
    }

    /// Shows and changes only messages of this consumer. Outboxes and relays are shown of all.
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = Some(name.into());
        self
    }

    /// The router of the page, for [`Router::nest_service`]. All links begin with the path under which it is nested, so
    /// `/ops/idem` and `/ops/idem/` both work; [`Router::nest`] has only the first one.
    pub fn into_router(self) -> Router {
        let answer = |visit: Visit<S>| async move { visit.show(view(&visit)).await };
        Router::new()
            .route("/", get(answer))
            .route("/{*path}", get(answer))
            .route("/do/{action}", post(answer))
            .route("/style.css", get(style))
            .layer(map_response(guard::with_headers))
            .with_state(Arc::new(self))
    }
}

/// The view at the path of a request.
async fn view<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let path = visit.at.path.as_str();
    match path.split('/').skip(1).collect::<Vec<_>>()[..] {
        [""] => overview::view(visit).await,
        ["dead"] => dead::view(visit).await,
        ["message", id] => message::view(visit, id).await,
        ["why"] => why::view(visit).await,
        ["outbox"] => lists::outbox(visit).await,
        ["calls"] => lists::calls(visit).await,
        ["workers"] => lists::workers(visit).await,
        ["operations"] => lists::operations(visit).await,
        ["do", action] => change::view(visit, action).await,
        _ => Err(Failure(StatusCode::NOT_FOUND, format!("there is no page at {path}"))),
    }
}

/// Shows neither the store nor the options.
impl<S> fmt::Debug for Page<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").finish_non_exhaustive()
    }
}

/// The stylesheet. Its address has the version of this crate, so a browser keeps it for a day.
async fn style() -> impl IntoResponse {
    let headers = [(CONTENT_TYPE, "text/css; charset=utf-8"), (CACHE_CONTROL, "max-age=86400")];
    (headers, include_str!("style.css"))
}
