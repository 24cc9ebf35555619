//! The connection that all calls of a sink share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idem_core::{Error, SinkError};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::bare::{Bare, Publisher};
use crate::config::Config;

/// The connection of a sink, which is opened when a call needs it.
#[derive(Default)]
pub(crate) struct Publishing {
    publisher: Mutex<State>,
    /// How many attempts to connect have failed.
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    publisher: Option<Arc<Publisher>>,
    /// The attempt to connect. It goes on when the call that began it is dropped: a relay waits for a shorter time than
    /// it takes to find that one of several hosts does not answer.
    attempt: Option<Attempt>,
    /// Why the last attempt to connect has failed.
    failure: String,
}

/// A task that connects, which ends with this value.
struct Attempt(JoinHandle<Result<Publisher, Error>>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Publishing {
    /// Opens a connection, unless one is open.
    pub(crate) async fn open(&self, config: &Arc<Config>, exchange: &str) -> Result<Arc<Publisher>, Error> {
        self.connect(&mut *self.publisher.lock().await, config, exchange).await
    }

    /// Returns the connection. Calls that find it lost share one attempt to open the next, and its failure. Cancel safe:
    /// an attempt goes on without the call that began it, and the next call waits for its end.
    pub(crate) async fn get(&self, config: &Arc<Config>, exchange: &str) -> Result<Arc<Publisher>, SinkError> {
        let seen = self.failures.load(SeqCst);
        let mut state = self.publisher.lock().await;
        if self.failures.load(SeqCst) != seen && !state.is_live() {
            return Err(SinkError::broker(state.failure.clone()));
        }
        // An exchange that was deleted stops all messages, so it is a failure of the broker here.
        self.connect(&mut state, config, exchange).await.map_err(SinkError::broker)
    }

    async fn connect(&self, state: &mut State, config: &Arc<Config>, exchange: &str) -> Result<Arc<Publisher>, Error> {
        if let Some(publisher) = state.publisher.as_ref().filter(|publisher| publisher.is_live()) {
            return Ok(Arc::clone(publisher));
        }
        if let Some(ended) = state.publisher.take().filter(|ended| !ended.was_refused()) {
            config.first.leave(ended.host);
        }
        let attempt = state.attempt.get_or_insert_with(|| {
            let (config, exchange) = (Arc::clone(config), exchange.to_owned());
            Attempt(tokio::spawn(async move { Bare::publish(&config, &exchange).await }))
        });
        let connected = (&mut attempt.0).await;
        state.attempt = None;
        match connected.unwrap_or_else(|error| Err(Error::broker("the attempt to connect has ended", error))) {
            Ok(publisher) => Ok(Arc::clone(state.publisher.insert(Arc::new(publisher)))),
            Err(error) => {
                state.failure = error.to_string();
                self.failures.fetch_add(1, SeqCst);
                Err(error)
            }
        }
    }

    /// Returns a connection on which no message is unconfirmed, so that a refusal concerns the next message. Calls must
    /// not overlap.
    pub(crate) async fn idle(&self, config: &Arc<Config>, exchange: &str) -> Result<Arc<Publisher>, SinkError> {
        let publisher = self.get(config, exchange).await?;
        if publisher.is_idle() {
            return Ok(publisher);
        }
        self.close().await;
        self.get(config, exchange).await
    }

    /// Closes the connection, if there is one. What is unconfirmed is answered with an error.
    pub(crate) async fn close(&self) {
        let publisher = {
            let mut state = self.publisher.lock().await;
            state.attempt = None;
            state.publisher.take()
        };
        if let Some(publisher) = publisher {
            publisher.close().await;
        }
    }
}

impl State {
    fn is_live(&self) -> bool {
        self.publisher.as_ref().is_some_and(|publisher| publisher.is_live())
    }
}
