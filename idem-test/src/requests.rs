//! A harness for a service that lets HTTP requests run once.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use idem_core::BoxError;
use tower_service::Service;

/// For how long a request is repeated until it has its reply.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client waits before it repeats a request.
const PAUSE: Duration = Duration::from_millis(20);
/// The parts of a reply that each repeat has to get.
const COMPARED: [&str; 4] = ["content-type", "location", "etag", "link"];

/// Sends requests to a service, in every way in which clients repeat them. Created by [`requests`].
#[derive(Debug, Clone)]
pub struct RequestTrial<A> {
    app: A,
}

/// Returns a trial of this service: an `axum::Router`, or any tower service with a layer of `Requests`. It needs no socket.
///
/// ```no_run
/// # use bytes::Bytes; use http::Request; use idem_core::BoxError;
/// # use http_body_util::Full;
/// # async fn test<A>(app: A, payments: impl AsyncFnMut() -> Result<i64, BoxError>) -> Result<(), BoxError>
/// # where A: tower_service::Service<Request<Full<Bytes>>, Response = http::Response<Full<Bytes>>, Error = BoxError> + Clone {
/// let payment = |number: u32| {
///     let request = Request::post("/payments").header("content-type", "application/json");
///     let request = request.header("idempotency-key", format!("payment-{number}"));
///     request.body(Bytes::from(r#"{"cents": 2500}"#))
/// };
/// idem_test::requests(app).have_one_effect(payment, payments).await?;
/// # Ok(()) }
/// ```
pub fn requests<A>(app: A) -> RequestTrial<A> {
    RequestTrial { app }
}

/// What is compared of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    status: StatusCode,
    headers: Vec<(&'static str, Vec<Bytes>)>,
    body: Bytes,
}

impl<A> RequestTrial<A> {
    /// Sends requests in each way (once, twice, five at once, and with a connection that is cut at each point before the answer),
    /// repeats each until it has its reply, and checks that it has the effect of a single request, and that all its replies are
    /// equal. `request` creates a new request for each way, from a number: with a key of its own. `effect` reads a number from the
    /// test's own tables; each request must change it by the same amount.
    ///
    /// The service does not die; [`requests_of`](crate::requests_of) also lets its process die at each point.
    ///
    /// # Errors
    /// Returns the first way in which an effect or a reply differs, or any other failure.
    pub async fn have_one_effect<R>(
        &self,
        mut request: impl FnMut(u32) -> http::Result<Request<Bytes>>,
        mut effect: impl AsyncFnMut() -> Result<i64, BoxError>,
    ) -> Result<(), BoxError>
    where
        A: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Into<BoxError>> + Clone,
        R: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let before = effect().await?;
        let sent = request(0)?;
        let reply = self.repeat(&sent).await?;
        let one = effect().await? - before;
        if one == 0 {
            return Err(format!("a single request has no effect; its reply has the status {}", reply.status).into());
        }
        let mut number = 0;
        // Each count of polls cuts the connection at another point, until the request ends before.
        let cuts = (0_u32..7).map(|power| Some(2_usize.pow(power)));
        for (copies, cut) in [(1, None), (2, None), (5, None)].into_iter().chain(cuts.map(|cut| (1, cut))) {
            number += 1;
            let (before, sent) = (effect().await?, request(number)?);
            let way = match cut {
                Some(polls) => format!("with its connection cut after {polls} polls"),
                None => format!("sent {copies} times at once"),
            };
            let ended = match cut {
                Some(polls) => within(polls, send(&mut self.app.clone(), sent.clone())).await.is_some(),
                None => false,
            };
            let mut replies = join_all((0..copies).map(|_| self.repeat(&sent))).await;
            replies.push(self.repeat(&sent).await);
            let replies = replies.into_iter().collect::<Result<Vec<_>, _>>()?;
            let effects = effect().await? - before;
            if effects != one {
                return Err(
                    format!("a request {way} has changed the effect by {effects}, and a single one by {one}").into()
                );
            }
            if let Some(other) = replies.iter().find(|reply| **reply != replies[0]) {
                return Err(format!("a request {way} has got two replies: {:?} and {other:?}", replies[0]).into());
            }
            if ended {
                break;
            }
        }
        Ok(())
    }

    /// Sends a request until it has a reply, as a client does that is told to come again.
    pub(crate) async fn repeat<R>(&self, request: &Request<Bytes>) -> Result<Reply, BoxError>
    where
        A: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Into<BoxError>> + Clone,
        R: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let begun = Instant::now();
        loop {
            let response = send(&mut self.app.clone(), request.clone()).await?;
            let (head, body) = response.into_parts();
            let come_again = head.headers.contains_key("retry-after") || head.status == StatusCode::CONFLICT;
            if !come_again || begun.elapsed() > PATIENCE {
                let body = body.collect().await.map_err(Into::<BoxError>::into)?.to_bytes();
                return reply(head.status, &head.headers, body);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Sends a request to a service.
pub(crate) async fn send<A, R>(app: &mut A, request: Request<Bytes>) -> Result<Response<R>, BoxError>
where
    A: Service<Request<Full<Bytes>>, Response = Response<R>, Error: Into<BoxError>>,
{
    poll_fn(|context| app.poll_ready(context)).await.map_err(Into::<BoxError>::into)?;
    app.call(request.map(Full::new)).await.map_err(Into::<BoxError>::into)
}

/// Returns what is compared of a reply. Only one that is kept can be the same each time.
fn reply(status: StatusCode, headers: &HeaderMap, body: Bytes) -> Result<Reply, BoxError> {
    if status.is_server_error() || status == StatusCode::CONFLICT {
        let text = String::from_utf8_lossy(&body);
        return Err(format!("a request has got no reply but the status {status}: {text}").into());
    }
    let values = |name| headers.get_all(name).iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect();
    Ok(Reply { status, headers: COMPARED.map(|name| (name, values(name))).to_vec(), body })
}

/// Polls a future at most so often, and then drops it. `None` if it has not ended.
async fn within<T>(polls: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}
