//! The connection that all calls of a sink share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idem_core::{Error, SinkError};
use tokio::sync::Mutex;

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
    /// Why the last attempt to connect has failed.
    failure: String,
}

impl Publishing {
    /// Opens a connection, unless one is open.
    pub(crate) async fn open(&self, config: &Config, exchange: &str) -> Result<Arc<Publisher>, Error> {
        self.connect(&mut *self.publisher.lock().await, config, exchange).await
    }

    /// Returns the connection. Calls that find it lost share one attempt to open the next, and its failure. Cancel safe:
    /// if the call that connects is dropped, another one does.
    pub(crate) async fn get(&self, config: &Config, exchange: &str) -> Result<Arc<Publisher>, SinkError> {
        let seen = self.failures.load(SeqCst);
        let mut state = self.publisher.lock().await;
        if self.failures.load(SeqCst) != seen && !state.is_live() {
            return Err(SinkError::broker(state.failure.clone()));
        }
        // An exchange that was deleted stops all messages, so it is a failure of the broker here.
        self.connect(&mut state, config, exchange).await.map_err(SinkError::broker)
    }

    async fn connect(&self, state: &mut State, config: &Config, exchange: &str) -> Result<Arc<Publisher>, Error> {
        if let Some(publisher) = state.publisher.as_ref().filter(|publisher| publisher.is_live()) {
            return Ok(Arc::clone(publisher));
        }
        if let Some(lost) = state.publisher.take() {
            config.first.leave(lost.host);
        }
        match Bare::publish(config, exchange).await {
            Ok(publisher) => Ok(Arc::clone(state.publisher.insert(Arc::new(publisher)))),
            Err(error) => {
                state.failure = error.to_string();
                self.failures.fetch_add(1, SeqCst);
                Err(error)
            }
        }
    }

    /// Closes the connection, if there is one. What is unconfirmed is answered with an error.
    pub(crate) async fn close(&self) {
        let publisher = self.publisher.lock().await.publisher.take();
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
