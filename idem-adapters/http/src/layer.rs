//! The way of a request: its key, its body, its claim, its handler in a task of its own, and the commit with its reply.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use http::request::Parts;
use http::{HeaderName, Method, Request, Response};
use http_body::Body;
use idem_core::request::{Begun, NotCommitted, OpenRequest, RequestRunner};
use idem_core::store::Replies;
use idem_core::{BoxError, Fingerprint, Key};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use crate::lend::{Lender, Outbox};
use crate::problem::Problem;
use crate::reply::{self, Reply};
use crate::{body, key};

/// The function that returns the owner of the keys.
pub(crate) type Scope = Arc<dyn Fn(&Parts) -> Result<String, BoxError> + Send + Sync>;

/// The options of requests, as their layer uses them.
#[derive(Clone)]
pub(crate) struct Config<S: Replies> {
    pub(crate) runner: RequestRunner<S>,
    /// `None`: all clients share the keys.
    pub(crate) scope: Option<Scope>,
    pub(crate) methods: Vec<Method>,
    pub(crate) is_required: bool,
    pub(crate) max_body: usize,
    pub(crate) max_reply: usize,
    pub(crate) kept: Vec<HeaderName>,
}

/// The layer of [`Requests`](crate::Requests).
pub struct RequestsLayer<S: Replies>(pub(crate) Arc<Config<S>>);

/// The service that [`RequestsLayer`] makes of another one.
pub struct RequestsService<S: Replies, I> {
    config: Arc<Config<S>>,
    inner: I,
}

impl<S: Replies, I> Layer<I> for RequestsLayer<S> {
    type Service = RequestsService<S, I>;

    fn layer(&self, inner: I) -> Self::Service {
        RequestsService { config: self.0.clone(), inner }
    }
}

impl<S, I, B, R> Service<Request<B>> for RequestsService<S, I>
where
    S: Replies,
    I: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    I::Future: Send + 'static,
    I::Error: Send + 'static,
    B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + From<Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<R>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, I::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The clone may not be ready; this one is.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        if !self.config.methods.contains(request.method()) {
            return Box::pin(inner.call(request));
        }
        let config = self.config.clone();
        Box::pin(async move { config.answer(inner, request).await })
    }
}

impl<S: Replies> Config<S> {
    /// Answers a request. Until its handler is called, dropping the future leaves nothing behind; from there on, the task does its
    /// work to its end.
    async fn answer<I, B, R>(&self, inner: I, request: Request<B>) -> Result<Response<R>, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>> + Send + 'static,
        I::Future: Send + 'static,
        I::Error: Send + 'static,
        B: Body<Data = Bytes> + From<Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
        R: Body<Data = Bytes> + From<Bytes> + Send + 'static,
        R::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        if parts.extensions.get::<Lender<S::Connection>>().is_some() {
            tracing::error!(
                "a request comes through two layers of `Requests`: the inner one would wait for the outer one, so remove one"
            );
            return Ok(Problem::Failed.response());
        }
        let (claim, body) = match self.claim(&parts, body).await {
            Ok(claim) => claim,
            Err(problem) => return Ok(problem.response()),
        };
        let key = claim.as_ref().map(|(key, _)| key.clone());
        let key = key.as_ref().map(tracing::field::display);
        let (txn, open) = match self.runner.begin(claim).await {
            Begun::Open(txn, open) => (txn, open),
            Begun::Replied(reply) => {
                tracing::debug!(key, "a repeated request gets the stored reply");
                return Ok(reply::again(reply));
            }
            not_begun => {
                let problem = problem(&not_begun);
                tracing::debug!(key, ?problem, "a request does not run");
                return Ok(problem.response());
            }
        };
        let request = Request::from_parts(parts, body);
        let run = Run { lender: Lender::of::<S>(txn), open, reply: Reply::default() };
        let (max_reply, kept) = (self.max_reply, self.kept.clone());
        // There is no wait between the begin of the transaction and its task.
        let work = async move {
            let handled = run.handle(inner, request).await;
            run.end(handled, max_reply, &kept).await
        };
        let task = self.runner.spawn(work.in_current_span());
        // A task that does not end is one of a runtime that ends.
        task.await.unwrap_or_else(|_| Ok(Problem::Unavailable.response()))
    }

    /// Returns the key and the fingerprint of a request, if it has a key, and its body.
    async fn claim<B>(&self, parts: &Parts, body: B) -> Result<(Option<(Key, Fingerprint)>, B), Problem>
    where
        B: Body<Data = Bytes> + From<Bytes>,
        B::Error: Into<BoxError>,
    {
        let key = match key::read(&parts.headers)? {
            Some(key) => key,
            None if self.is_required => return Err(Problem::NoKey),
            // Read here as well: a client that stalls must not hold a transaction.
            None => return Ok((None, B::from(body::read(body, self.max_body).await?))),
        };
        let scope = match &self.scope {
            None => None,
            Some(scope) => match scope(parts) {
                Ok(scope) if !scope.is_empty() => Some(scope),
                Ok(_) => return Err(Problem::NoScope),
                Err(error) => {
                    tracing::debug!(%error, "the scope of a request is not known");
                    return Err(Problem::NoScope);
                }
            },
        };
        let key = key::of_claim(scope.as_deref(), &key).map_err(|_| Problem::BadKey)?;
        let body = body::read(body, self.max_body).await?;
        let fingerprint = body::fingerprint(parts, &body);
        Ok((Some((key, fingerprint)), B::from(body)))
    }
}

/// Returns the answer to a request that does not run.
fn problem<S: Replies>(begun: &Begun<S>) -> Problem {
    match begun {
        Begun::Conflict => Problem::Conflict,
        Begun::Busy => Problem::Busy,
        Begun::Unanswered => Problem::Unanswered,
        Begun::Unavailable(fault) => {
            let why = std::error::Error::source(fault).map(ToString::to_string);
            tracing::warn!(error = %fault, why, "a request could not begin");
            Problem::NotBegun
        }
        _ => Problem::Unavailable,
    }
}

/// A request whose handler runs.
struct Run<S: Replies> {
    lender: Lender<S::Connection>,
    open: OpenRequest<S>,
    reply: Reply,
}

/// How the call of a handler has ended.
enum Handled<R, E> {
    Answered(Response<R>),
    Failed(E),
    Panicked,
    Late,
}

impl<S: Replies> Run<S> {
    /// Calls the handler, with the transaction, the outbox and the reply in the extensions of its request. Drops it when it is late.
    async fn handle<I, B, R>(&self, mut inner: I, mut request: Request<B>) -> Handled<R, I::Error>
    where
        I: Service<Request<B>, Response = Response<R>>,
    {
        let extensions = request.extensions_mut();
        extensions.insert(self.lender.clone());
        extensions.insert(Outbox(self.open.outbox().clone()));
        extensions.insert(self.reply.clone());
        // A panic of the call itself is caught too.
        let call = async move { inner.call(request).await };
        let handled = match in_time(self.open.deadline(), call).await {
            Ok(Ok(Ok(response))) => Handled::Answered(response),
            Ok(Ok(Err(error))) => Handled::Failed(error),
            Ok(Err(_)) => Handled::Panicked,
            Err(_) => Handled::Late,
        };
        self.open.handled();
        handled
    }

    /// Ends the transaction as the reply says, and returns the answer.
    async fn end<R, E>(self, handled: Handled<R, E>, max_reply: usize, kept: &[HeaderName]) -> Result<Response<R>, E>
    where
        R: Body<Data = Bytes> + From<Bytes>,
        R::Error: Into<BoxError>,
    {
        let Self { lender, open, reply } = self;
        let txn = lender.close::<S>();
        let response = match handled {
            Handled::Answered(response) => response,
            Handled::Failed(error) => {
                let is_undone = roll_back(&open, txn, lender.is_used()).await;
                return if is_undone { Err(error) } else { Ok(Problem::Failed.response()) };
            }
            Handled::Panicked => {
                roll_back(&open, txn, lender.is_used()).await;
                return Ok(panicked());
            }
            Handled::Late => {
                // It was dropped at any point, so the state of the connection is not known: it is closed.
                drop(txn);
                return Ok(late());
            }
        };
        let status = response.status();
        if !(reply.is_kept() || reply::is_kept_by_default(status)) {
            let is_undone = roll_back(&open, txn, lender.is_used() && status.is_server_error()).await;
            return Ok(if is_undone { response } else { Problem::Failed.response() });
        }
        let Some(txn) = txn else {
            tracing::error!(
                "the transaction of a request was not given back: do not move `Tx` into a task or a reply that outlives the handler"
            );
            return Ok(Problem::Failed.response());
        };
        let (head, body) = response.into_parts();
        let (stored, body) = match open.has_key() {
            false => (None, body),
            // The body may be code of the application too, such as the answer of another service.
            true => match in_time(open.deadline(), body::whole(body, max_reply)).await {
                Ok(Ok(Ok(body))) => (Some(reply::stored(head.status, &head.headers, kept, &body)), R::from(body)),
                failed => {
                    roll_back(&open, Some(txn), false).await;
                    return Ok(match failed {
                        Err(_) => late(),
                        Ok(Err(_)) => panicked(),
                        Ok(Ok(unfit)) => {
                            let why = unfit.err().unwrap_or_default();
                            tracing::error!("the reply to a request cannot be kept: {why}");
                            Problem::Failed.response()
                        }
                    });
                }
            },
        };
        let has_key = open.has_key();
        Ok(match open.commit(txn, stored).await {
            Ok(()) => Response::from_parts(head, body),
            Err(error) => not_committed(&error, has_key).response(),
        })
    }
}

/// Runs code of the application until its time ends, and catches its panic.
async fn in_time<F: Future>(deadline: Instant, work: F) -> Result<std::thread::Result<F::Output>, Elapsed> {
    timeout_at(deadline, AssertUnwindSafe(work).catch_unwind()).await
}

/// Rolls back. `is_doubtful`: a handler that has used the connection has failed. Its session may be outdated, and each request would
/// fail in it, so it is closed. Returns `false` if the handler had committed before.
async fn roll_back<S: Replies>(open: &OpenRequest<S>, txn: Option<S::Txn>, is_doubtful: bool) -> bool {
    match txn {
        Some(txn) if !is_doubtful => open.roll_back(txn).await,
        closed => {
            drop(closed);
            true
        }
    }
}

fn panicked<R: From<Bytes>>() -> Response<R> {
    tracing::error!("the handler of a request panicked");
    Problem::Failed.response()
}

fn late<R: From<Bytes>>() -> Response<R> {
    tracing::warn!("the handler of a request has exceeded its timeout, and was dropped");
    Problem::Late.response()
}

fn not_committed(error: &NotCommitted, has_key: bool) -> Problem {
    match error {
        NotCommitted::Refused(_) => {
            tracing::error!(%error, "a request cannot be committed");
            Problem::Failed
        }
        _ => {
            tracing::warn!(%error, "a request is not known to be committed");
            if has_key { Problem::Unavailable } else { Problem::Unknown }
        }
    }
}

impl<S: Replies> Clone for RequestsLayer<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: Replies, I: Clone> Clone for RequestsService<S, I> {
    fn clone(&self) -> Self {
        Self { config: self.config.clone(), inner: self.inner.clone() }
    }
}

impl<S: Replies> fmt::Debug for RequestsLayer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestsLayer").field("runner", &self.0.runner).finish_non_exhaustive()
    }
}

impl<S: Replies, I> fmt::Debug for RequestsService<S, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestsService").field("runner", &self.config.runner).finish_non_exhaustive()
    }
}
