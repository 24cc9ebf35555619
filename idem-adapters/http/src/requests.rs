//! The options of requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::HeaderName;
use http::request::Parts;
use idem_core::request::RequestRunner;
use idem_core::store::Replies;
use idem_core::{BoxError, Source, Worker};

use crate::layer::{Config, RequestsLayer, Scope};
use crate::reply::KEPT;

/// The limit of bodies, in bytes.
const MEBIBYTE: usize = 1024 * 1024;

/// Requests that run once, by the `Idempotency-Key` that their clients send.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::store::Replies; use idem_http::{Requests, RequestsLayer};
/// fn payments<S: Replies>(store: S) -> RequestsLayer<S> {
///     // The owner of the keys, which authentication has put into the extensions of the request.
///     #[derive(Clone)]
///     struct Tenant(String);
///     let requests = Requests::new("payments-api", store)
///         .scope(|parts| parts.extensions.get::<Tenant>().map(|Tenant(id)| id.clone()).ok_or("no tenant"))
///         .required();
///     requests.layer()
/// }
/// ```
///
/// With axum, add the layer by `route_layer`, inside of the authentication: a path that has no route then begins no transaction.
pub struct Requests<S: Replies> {
    pub(crate) config: Config<S>,
}

/// Requests whose keys have no scope yet, and that therefore have no layer.
#[must_use = "say whose the keys are: `.scope(..)`, or `.one_scope_for_everyone()`"]
pub struct Unscoped<S: Replies>(RequestRunner<S>);

impl<S: Replies> Unscoped<S> {
    /// Returns the owner of the keys of a request, such as the tenant or the user that authentication has found: each owner has keys
    /// of its own. If the function fails, the request gets the status 403, and nothing is looked up; the error is only logged.
    ///
    /// The owner must not come from a value that any client may choose: it would get the replies of others.
    pub fn scope<T, E>(self, of: impl Fn(&Parts) -> Result<T, E> + Send + Sync + 'static) -> Requests<S>
    where
        T: Into<String>,
        E: Into<BoxError>,
    {
        let of: Scope = Arc::new(move |parts: &Parts| -> Result<String, BoxError> {
            of(parts).map(Into::into).map_err(Into::into)
        });
        Requests::of(self.0, Some(of))
    }

    /// Lets all clients share the keys, for a service with one client, or where all may see all replies.
    pub fn one_scope_for_everyone(self) -> Requests<S> {
        Requests::of(self.0, None)
    }
}

impl<S: Replies> Requests<S> {
    /// Returns requests with this name, which is part of every claim: under another name, all of them are new. Instances of one
    /// service share a name. A key counts for all routes in the layers of one name: on another route it is a conflict.
    ///
    /// Use a name that no worker has. The outbox has the same name, and a relay with it publishes what handlers stage.
    #[expect(clippy::new_ret_no_self, reason = "without a scope, the replies of one client could reach another")]
    pub fn new(name: impl Into<String>, store: S) -> Unscoped<S> {
        Unscoped(RequestRunner::new(name, store))
    }

    fn of(runner: RequestRunner<S>, scope: Option<Scope>) -> Self {
        let config = Config {
            runner,
            scope,
            methods: vec![Method::POST, Method::PATCH],
            is_required: false,
            max_body: MEBIBYTE,
            max_reply: MEBIBYTE,
            kept: KEPT.to_vec(),
        };
        Self { config }
    }

    /// Refuses requests without a key, with the status 400. By default, they run in a transaction without one.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.config.is_required = true;
        self
    }

    /// Sets the methods that the layer is for; POST and PATCH by default. All others pass through it, without a transaction.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.config.methods = methods.into_iter().collect();
        self
    }

    /// Sets how long a handler may run; 30 seconds by default. Then it is dropped, and what it has written is rolled back. It runs
    /// on if its client is gone.
    #[must_use]
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.config.runner.options.timeout = timeout;
        self
    }

    /// Sets how long a request waits for another one with its key, before it gets the status 409, and for a connection, before it
    /// gets 503; 2 seconds by default. With PostgreSQL, a wait for a request in another process takes at least a second.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.config.runner.options.wait = wait;
        self
    }

    /// Sets how long keys and replies are kept; 24 hours by default. A later repeat is a new request. The greatest value that a
    /// process has ever set counts, until an operator lowers it in the table `handlers`.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.config.runner.options.retention = retention;
        self
    }

    /// Sets the largest body of a request, in bytes; 1 MiB by default. A larger one gets the status 413. It is read before the
    /// transaction begins.
    #[must_use]
    pub fn max_body(mut self, bytes: usize) -> Self {
        self.config.max_body = bytes;
        self
    }

    /// Keeps this header of replies too, besides `content-type`, `content-encoding`, `location`, `etag` and `link`. `set-cookie` is never kept.
    #[must_use]
    pub fn keep_header(mut self, name: HeaderName) -> Self {
        self.config.kept.push(name);
        self
    }

    /// Lets handlers hand messages over to the handlers that this worker has now, by
    /// [`local`](idem_core::Outbox::local), without a broker and without a relay. If it runs in this process, it
    /// finds them at once; in another one, on the same database, at its next poll.
    #[must_use]
    pub fn local_to<Src: Source, St, C, Stage>(mut self, worker: &Worker<S, Src, St, C, Stage>) -> Self {
        self.config.runner.options.local_to(worker);
        self
    }

    /// Returns the layer. Several layers of one `Requests` share its keys.
    pub fn layer(&self) -> RequestsLayer<S> {
        RequestsLayer(Arc::new(self.config.clone()))
    }

    /// Waits until all requests have ended, also those whose clients are gone. Await it after the server has ended. Cancel safe.
    ///
    /// ```no_run
    /// # #[cfg(feature = "axum")] mod example {
    /// # use idem_core::store::Replies; use idem_http::Requests;
    /// # async fn serve<S: Replies>(server: impl Future<Output = ()>, requests: Requests<S>) {
    /// // axum::serve(listener, app).with_graceful_shutdown(idem::shutdown_signal())
    /// server.await;
    /// requests.finished().await;
    /// # }
    /// # }
    /// ```
    pub async fn finished(&self) {
        self.config.runner.finished().await;
    }
}

impl<S: Replies> fmt::Debug for Requests<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("runner", &self.config.runner).finish_non_exhaustive()
    }
}

impl<S: Replies> fmt::Debug for Unscoped<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Unscoped").field(&self.0).finish()
    }
}
