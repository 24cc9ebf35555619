//! The link to the current connection of a source.

use std::sync::Arc;

use bytes::Bytes;
use idem_core::BoxError;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::{ANSWER, Connection, Lost};

/// The current connection of a source. Ackers hold this, because on NATS a delivery outlives the connection that brought
/// it. The connection is shared, since a client is not cheap to clone, and each ack needs it.
#[derive(Clone)]
pub(crate) struct Link(Arc<watch::Sender<Option<Arc<Connection>>>>);

impl Link {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn set(&self, connection: Option<Connection>) {
        self.0.send_replace(connection.map(Arc::new));
    }

    /// Returns the connection if there is one that is not lost.
    pub(crate) fn now(&self) -> Option<Arc<Connection>> {
        self.0.borrow().clone().filter(|connection| connection.is_live())
    }

    /// Waits until there is a connection, and returns it.
    async fn soon(&self) -> Arc<Connection> {
        if let Some(connection) = self.now() {
            return connection;
        }
        let mut changes = self.0.subscribe();
        loop {
            // Marked before the check, so that no change in between is missed.
            changes.mark_unchanged();
            if let Some(connection) = self.now() {
                return connection;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends `word` and waits for the consumer's response, over as many connections as it takes. Only for messages that
    /// may arrive twice and late. Calls `meant` for each connection, and returns `false` without sending over that
    /// connection if `meant` returns `false`.
    pub(crate) async fn send_confirmed(
        &self,
        subject: &str,
        word: &'static str,
        meant: impl Fn() -> bool,
    ) -> Result<bool, BoxError> {
        let asked = async {
            loop {
                let connection = self.soon().await;
                // The subscription that opened this connection has already checked whether the stream was recreated.
                if !meant() {
                    return Ok(false);
                }
                match connection.ask(subject, word).await {
                    Err(error) if error.is::<Lost>() => {}
                    answer => return answer.map(|()| true),
                }
            }
        };
        timeout(ANSWER, asked).await.unwrap_or_else(|_| Err(silence(word)))
    }

    /// Sends `word` over the current connection and waits for the consumer's response until `limit`. Fails if there is
    /// no connection.
    pub(crate) async fn ask(&self, subject: &str, word: &'static str, limit: Instant) -> Result<(), BoxError> {
        let connection = self.now().ok_or(Lost)?;
        timeout_at(limit, connection.ask(subject, word)).await.unwrap_or_else(|_| Err(silence(word)))
    }

    /// Sends `word` as soon as there is a connection, and does not wait for a response. Returns `false` as
    /// [`send_confirmed`](Self::send_confirmed) does.
    pub(crate) async fn send(
        &self,
        subject: &str,
        word: &'static str,
        meant: impl Fn() -> bool,
    ) -> Result<bool, BoxError> {
        let connection = timeout(ANSWER, self.soon()).await.map_err(|_| Lost)?;
        if !meant() {
            return Ok(false);
        }
        connection.client.publish(subject.to_owned(), Bytes::from_static(word.as_bytes())).await?;
        Ok(true)
    }
}

fn silence(word: &str) -> BoxError {
    format!("the consumer has not answered {word}").into()
}
