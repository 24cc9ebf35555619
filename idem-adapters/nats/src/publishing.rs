//! The connection that all calls of a sink share.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idem_core::{Error, SinkError};
use tokio::sync::Mutex;

use crate::config::Config;
use crate::connection::Connection;

/// The connection of a sink, which is opened when a call needs it.
#[derive(Default)]
pub(crate) struct Publishing {
    state: Mutex<State>,
    /// How many attempts to connect have failed.
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// Why the last attempt to connect has failed.
    failure: String,
}

impl Publishing {
    /// Opens a connection, unless one is open.
    pub(crate) async fn open(&self, config: &Config) -> Result<Connection, Error> {
        self.connect(&mut *self.state.lock().await, config).await
    }

    /// Returns the connection. Calls that find it lost share one attempt to open the next, and its failure. Cancel safe:
    /// if the call that connects is dropped, another one does.
    pub(crate) async fn get(&self, config: &Config) -> Result<Connection, SinkError> {
        let seen = self.failures.load(SeqCst);
        let mut state = self.state.lock().await;
        if self.failures.load(SeqCst) != seen && state.live().is_none() {
            return Err(SinkError::broker(state.failure.clone()));
        }
        self.connect(&mut state, config).await.map_err(SinkError::broker)
    }

    async fn connect(&self, state: &mut State, config: &Config) -> Result<Connection, Error> {
        if let Some(connection) = state.live() {
            return Ok(connection.clone());
        }
        state.connection = None;
        match Connection::open(config, "sink").await {
            Ok(connection) => Ok(state.connection.insert(connection).clone()),
            Err(error) => {
                state.failure = error.to_string();
                self.failures.fetch_add(1, SeqCst);
                Err(error)
            }
        }
    }

    /// Ends the connection, if there is one: calls that wait for an answer end with an error.
    pub(crate) async fn close(&self) {
        if let Some(connection) = self.state.lock().await.connection.take() {
            connection.lost.cancel();
        }
    }
}

impl State {
    fn live(&self) -> Option<&Connection> {
        self.connection.as_ref().filter(|connection| !connection.lost.is_cancelled())
    }
}
