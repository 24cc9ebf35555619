//! The producer that all calls of a sink share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use idem_core::{Error, SinkError};
use tokio::sync::Mutex;

use crate::config::Config;
use crate::sender::Sender;

/// The producer of a sink, which is created when a call needs it.
#[derive(Default)]
pub(crate) struct Publishing {
    /// Whether each message is sent in a batch by itself.
    single: bool,
    state: Mutex<State>,
    /// How many attempts to create one have failed.
    failures: AtomicU64,
}

#[derive(Default)]
struct State {
    producer: Option<Arc<Sender>>,
    /// Why the last attempt to create one has failed.
    failure: String,
}

impl Publishing {
    pub(crate) fn single() -> Self {
        Self { single: true, ..Self::default() }
    }

    /// Creates a producer, unless there is one.
    pub(crate) async fn open(&self, config: &Config) -> Result<Arc<Sender>, Error> {
        self.create(&mut *self.state.lock().await, config).await
    }

    /// Returns the producer. Calls that find that it has ended share one attempt to create the next, and its failure.
    /// Cancel safe: if the call that creates it is dropped, another one does.
    pub(crate) async fn get(&self, config: &Config) -> Result<Arc<Sender>, SinkError> {
        let seen = self.failures.load(SeqCst);
        let mut state = self.state.lock().await;
        if self.failures.load(SeqCst) != seen && state.live().is_none() {
            return Err(SinkError::broker(state.failure.clone()));
        }
        self.create(&mut state, config).await.map_err(SinkError::broker)
    }

    async fn create(&self, state: &mut State, config: &Config) -> Result<Arc<Sender>, Error> {
        if let Some(producer) = state.live() {
            return Ok(Arc::clone(producer));
        }
        state.producer = None;
        let created = match config.current().await {
            Ok(config) => Sender::new(&config, self.single).map_err(Error::from),
            Err(error) => Err(error),
        };
        match created {
            Ok(producer) => Ok(Arc::clone(state.producer.insert(Arc::new(producer)))),
            Err(error) => {
                state.failure = error.to_string();
                self.failures.fetch_add(1, SeqCst);
                Err(error)
            }
        }
    }

    /// Ends the producer, if there is one: calls that wait for a report end with an error.
    pub(crate) async fn close(&self) {
        if let Some(producer) = self.state.lock().await.producer.take() {
            producer.end();
        }
    }
}

impl State {
    fn live(&self) -> Option<&Arc<Sender>> {
        self.producer.as_ref().filter(|producer| producer.is_live())
    }
}
