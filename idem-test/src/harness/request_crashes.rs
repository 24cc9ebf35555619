//! Requests to a service whose process dies.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use idem_core::BoxError;
use idem_core::store::Replies;
use tower_service::Service;

use crate::requests::{requests, send};
use crate::tapped_store::TappedStore;

use super::connect::{Connect, Connecting};
use super::crash::Crash;
use super::crash_plan::CrashPlan;
use super::process_thread::{End, ProcessThread};

/// The points that each request reaches.
const POINTS: [Crash; 4] = [Crash::BeforeBegin, Crash::AfterClaim, Crash::BeforeCommit, Crash::AfterCommit];

/// The number of the first request to a process that dies.
const FIRST: u32 = 1000;

/// The store of a process.
type StoreOf<F> = TappedStore<<<F as Connect>::Output as Connecting>::Store, CrashPlan>;

/// Sends requests to a service, also to processes of it that die. Created by [`requests_of`].
pub struct ServiceTrial<F, B> {
    connect: Arc<F>,
    app: B,
}

/// Returns a trial of the service that `app` makes of a store, for which each process connects by itself. The store of `app` stops
/// where its process dies, so `app` takes any store with the right connection.
///
/// ```no_run
/// # use bytes::Bytes; use http::{Request, Response}; use http_body_util::Full; use idem_core::BoxError;
/// # use idem_core::store::Replies;
/// # #[derive(Clone)] struct Router; struct PgConnection; struct Pending;
/// # type Answered = std::future::Ready<Result<Response<Full<Bytes>>, BoxError>>;
/// # impl tower_service::Service<Request<Full<Bytes>>> for Router {
/// #     type Response = Response<Full<Bytes>>; type Error = BoxError; type Future = Answered;
/// #     fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), BoxError>> { Ok(()).into() }
/// #     fn call(&mut self, _: Request<Full<Bytes>>) -> Answered { std::future::ready(Err("".into())) }
/// # }
/// # async fn test<S: Replies<Connection = PgConnection>, C: Future<Output = Result<S, idem_core::Error>> + Send + 'static>(
/// #     connect: impl Fn() -> C + Send + Sync + 'static, payment: impl FnMut(u32) -> http::Result<Request<Bytes>>,
/// #     payments: impl AsyncFnMut() -> Result<i64, BoxError>) -> Result<(), BoxError> {
/// fn app<S: Replies<Connection = PgConnection>>(store: S) -> Router {
///     // Router::new().route("/payments", post(pay)).route_layer(Requests::new("api", store) .. .layer())
///     # drop(store); Router
/// }
/// idem_test::requests_of(connect, |store| app(store)).have_one_effect(payment, payments).await?;
/// # Ok(()) }
/// ```
pub fn requests_of<F, B, A>(connect: F, app: B) -> ServiceTrial<F, B>
where
    F: Connect,
    B: Fn(StoreOf<F>) -> A,
{
    ServiceTrial { connect: Arc::new(connect), app }
}

impl<F: Connect, B> ServiceTrial<F, B> {
    /// Does what [`RequestTrial::have_one_effect`](crate::RequestTrial::have_one_effect) does, and sends one more request to a
    /// process that dies at each point: before the claim, behind it, before COMMIT, and behind it. Then it repeats the request at
    /// a process that lives.
    ///
    /// # Errors
    /// Returns the first way in which an effect or a reply differs, or any other failure.
    pub async fn have_one_effect<A, R>(
        &self,
        mut request: impl FnMut(u32) -> http::Result<Request<Bytes>>,
        mut effect: impl AsyncFnMut() -> Result<i64, BoxError>,
    ) -> Result<(), BoxError>
    where
        <F::Output as Connecting>::Store: Replies,
        B: Fn(StoreOf<F>) -> A + Clone + Send + 'static,
        A: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Into<BoxError>, Future: Send>,
        A: Clone + Send + 'static,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let store = TappedStore::new(self.connect.connect().await?, CrashPlan::new(None, None));
        let living = requests((self.app)(store));
        living.have_one_effect(&mut request, &mut effect).await?;
        let before = effect().await?;
        living.repeat(&request(FIRST)?).await?;
        let one = effect().await? - before;
        for (number, point) in (FIRST + 1..).zip(POINTS) {
            let (before, sent) = (effect().await?, request(number)?);
            self.die_at(point, sent.clone()).await?;
            let replies = [living.repeat(&sent).await?, living.repeat(&sent).await?];
            let effects = effect().await? - before;
            if effects != one {
                let way = format!("whose process has died at {point:?}");
                return Err(
                    format!("a request {way} has changed the effect by {effects}, and a single one by {one}").into()
                );
            }
            if replies[0] != replies[1] {
                return Err(
                    format!("a request whose process has died at {point:?} has got two replies: {replies:?}").into()
                );
            }
        }
        Ok(())
    }

    /// Sends a request to a process that dies at this point.
    async fn die_at<A, R>(&self, point: Crash, request: Request<Bytes>) -> Result<(), BoxError>
    where
        <F::Output as Connecting>::Store: Replies,
        B: Fn(StoreOf<F>) -> A + Clone + Send + 'static,
        A: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Into<BoxError>, Future: Send> + Send + 'static,
        R: Send + 'static,
    {
        let (connect, app) = (self.connect.clone(), self.app.clone());
        let process = |crash_plan: CrashPlan, _| -> super::process::Running {
            Box::pin(async move {
                let store = connect.connect().await?;
                let mut app = app(TappedStore::new(store, crash_plan));
                // Nobody gets its answer, if there is one.
                drop(send(&mut app, request).await);
                Ok(())
            })
        };
        match ProcessThread::start(CrashPlan::new(Some(point), None), process)?.end().await? {
            End::Died => Ok(()),
            End::Returned(Err(error)) => Err(error.into()),
            End::Returned(Ok(())) => Err(format!("a request does not reach the point {point:?}").into()),
        }
    }
}

impl<F, B> fmt::Debug for ServiceTrial<F, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTrial").finish_non_exhaustive()
    }
}
