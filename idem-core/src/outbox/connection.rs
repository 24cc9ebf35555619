//! The connection that all calls of a sink share.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::SinkError;
use crate::Error;

/// The connection of a [`Sink`](crate::Sink), which is opened when a call needs it and replaced when it is lost.
///
/// Calls that find it lost share one attempt to open the next, and its failure. An attempt goes on when the call that began
/// it is dropped, and the next call waits for its end: a relay waits for a shorter time than it takes to find that one of
/// several hosts does not answer.
///
/// ```
/// # use std::sync::Arc;
/// # use idem_core::{Error, SinkConnection, SinkError};
/// # struct Client;
/// # impl Client {
/// #     fn is_open(&self) -> bool { true }
/// #     async fn connect() -> Result<Self, Error> { Ok(Self) }
/// # }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), SinkError> {
/// let connection = SinkConnection::new(Client::is_open);
/// let client = connection.get(|_lost| Client::connect()).await?;
/// assert!(Arc::ptr_eq(&client, &connection.get(|_lost| Client::connect()).await?));
/// # Ok(()) }
/// ```
pub struct SinkConnection<C> {
    is_live: fn(&C) -> bool,
    state: Mutex<State<C>>,
    /// How many attempts have failed.
    failures: AtomicU64,
}

struct State<C> {
    connection: Option<Arc<C>>,
    /// At most one.
    attempt: JoinSet<Result<C, Error>>,
    /// Why the last attempt has failed.
    failure: String,
}

impl<C: Send + Sync + 'static> SinkConnection<C> {
    /// Returns the place of a connection that is used as long as it is live.
    pub fn new(is_live: fn(&C) -> bool) -> Self {
        let state = State { connection: None, attempt: JoinSet::new(), failure: String::new() };
        Self { is_live, state: Mutex::new(state), failures: AtomicU64::new(0) }
    }

    /// Returns the connection. Unless it is live, opens another one by `connect`, which is given the lost one. Cancel safe.
    ///
    /// # Errors
    /// That of `connect`.
    pub async fn open<F>(&self, connect: impl FnOnce(Option<Arc<C>>) -> F) -> Result<Arc<C>, Error>
    where
        F: Future<Output = Result<C, Error>> + Send + 'static,
    {
        self.connect(&mut *self.state.lock().await, connect).await
    }

    /// The same for a call of [`publish`](crate::Sink::publish): an attempt that failed while it waited counts as its own.
    /// Cancel safe.
    ///
    /// # Errors
    /// [`SinkError::Broker`], whatever the reason: it stops all messages.
    pub async fn get<F>(&self, connect: impl FnOnce(Option<Arc<C>>) -> F) -> Result<Arc<C>, SinkError>
    where
        F: Future<Output = Result<C, Error>> + Send + 'static,
    {
        let seen = self.failures.load(SeqCst);
        let mut state = self.state.lock().await;
        if self.failures.load(SeqCst) != seen && self.live(&state).is_none() {
            return Err(SinkError::broker(state.failure.clone()));
        }
        self.connect(&mut state, connect).await.map_err(SinkError::broker)
    }

    async fn connect<F>(&self, state: &mut State<C>, connect: impl FnOnce(Option<Arc<C>>) -> F) -> Result<Arc<C>, Error>
    where
        F: Future<Output = Result<C, Error>> + Send + 'static,
    {
        if let Some(connection) = self.live(state) {
            return Ok(connection);
        }
        if state.attempt.is_empty() {
            state.attempt.spawn(connect(state.connection.take()));
        }
        let connected = match state.attempt.join_next().await {
            Some(Ok(connected)) => connected,
            Some(Err(ended)) => Err(Error::broker("the attempt to connect has ended", ended)),
            None => Err(Error::broker("cannot connect", "no attempt was made")),
        };
        match connected {
            Ok(connection) => Ok(Arc::clone(state.connection.insert(Arc::new(connection)))),
            Err(error) => {
                state.failure = error.to_string();
                self.failures.fetch_add(1, SeqCst);
                Err(error)
            }
        }
    }

    /// Takes the connection, so that it can be closed, and ends an attempt to open one.
    pub async fn take(&self) -> Option<Arc<C>> {
        let mut state = self.state.lock().await;
        state.attempt = JoinSet::new();
        state.connection.take()
    }

    fn live(&self, state: &State<C>) -> Option<Arc<C>> {
        state.connection.as_ref().filter(|connection| (self.is_live)(connection)).map(Arc::clone)
    }
}

impl<C> fmt::Debug for SinkConnection<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkConnection").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt;

    use super::*;

    fn failed() -> Result<u32, Error> {
        Err(Error::broker("cannot connect", "nobody answers"))
    }

    #[tokio::test]
    async fn calls_that_wait_share_an_attempt_and_its_failure() {
        let connection = SinkConnection::<u32>::new(|_| true);
        let held = connection.state.lock().await;
        let (first, second) = (connection.get(|_| ready(failed())), connection.get(|_| ready(Ok(7))));
        let (first, second, ()) = tokio::join!(first, second, async { drop(held) });
        assert!(first.unwrap_err().to_string().contains("nobody answers"));
        assert!(second.unwrap_err().to_string().contains("nobody answers"));
        assert_eq!(*connection.get(|_| ready(Ok(8))).await.unwrap(), 8);
        assert_eq!(*connection.take().await.unwrap(), 8);
    }

    #[tokio::test]
    async fn an_attempt_goes_on_without_the_call_that_began_it() {
        let connection = SinkConnection::<u32>::new(|_| true);
        let (send, receive) = tokio::sync::oneshot::channel();
        let call = connection.open(|_| async move { Ok(receive.await.unwrap_or_default()) });
        assert!(call.now_or_never().is_none());
        send.send(7).unwrap();
        assert_eq!(*connection.open(|_| pending()).await.unwrap(), 7);
    }
}
