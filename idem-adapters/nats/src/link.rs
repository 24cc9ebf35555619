//! The link to the current connection of a source.

use std::sync::Arc;

use bytes::Bytes;
use idem_core::BoxError;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::{ANSWER, Connection, Lost};
use crate::identity::Identity;

/// The current connection of a source, and the consumer that it is for. Ackers hold this, because on NATS a delivery
/// outlives the connection that brought it.
#[derive(Clone)]
pub(crate) struct Link(Arc<watch::Sender<Option<Arc<Linked>>>>);

/// Shared, since a client is not cheap to clone, and each ack has one.
type Linked = (Connection, Arc<Identity>);

impl Link {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn set(&self, linked: Option<Linked>) {
        self.0.send_replace(linked.map(Arc::new));
    }

    /// Returns the connection if there is one that is not lost.
    pub(crate) fn now(&self) -> Option<Connection> {
        Some(self.linked()?.0.clone())
    }

    fn linked(&self) -> Option<Arc<Linked>> {
        self.0.borrow().clone().filter(|linked| !linked.0.lost.is_cancelled())
    }

    /// Waits until there is a connection, and returns it.
    async fn soon(&self) -> Arc<Linked> {
        let mut changes = self.0.subscribe();
        loop {
            // Marked before the check, so that no change in between is missed.
            changes.mark_unchanged();
            if let Some(linked) = self.linked() {
                return linked;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until there is a connection whose consumer is certain to be the expected one, and returns it. There nearly
    /// always is one that was seen a moment ago: then nothing is waited for or locked.
    async fn certain(&self) -> Result<Arc<Linked>, BoxError> {
        if let Some(linked) = self.linked().filter(|linked| linked.1.is_certain()) {
            return Ok(linked);
        }
        loop {
            let linked = self.soon().await;
            match linked.1.confirm(&linked.0).await {
                Err(error) if error.is::<Lost>() => {}
                confirmed => return confirmed.map(|()| linked),
            }
        }
    }

    /// Sends `word` and waits for the consumer's response, over as many connections as it takes. Only for messages that
    /// may arrive twice and late. Calls `meant` for each connection, and returns `false` without sending over that
    /// connection if `meant` returns `false`.
    pub(crate) async fn insist(
        &self,
        subject: &str,
        word: &'static str,
        meant: impl Fn() -> bool,
    ) -> Result<bool, BoxError> {
        let asked = async {
            loop {
                let linked = self.certain().await?;
                // The subscription that opened this connection has already checked whether the stream was recreated.
                if !meant() {
                    return Ok(false);
                }
                match linked.0.ask(subject, word).await {
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
        let linked = self.linked().ok_or(Lost)?;
        timeout_at(limit, linked.0.ask(subject, word)).await.unwrap_or_else(|_| Err(silence(word)))
    }

    /// Sends `word` as soon as there is a connection, and does not wait for a response. Returns `false` as
    /// [`insist`](Self::insist) does.
    pub(crate) async fn tell(
        &self,
        subject: &str,
        word: &'static str,
        meant: impl Fn() -> bool,
    ) -> Result<bool, BoxError> {
        let linked = timeout(ANSWER, self.certain()).await.map_err(|_| Lost)??;
        if !meant() {
            return Ok(false);
        }
        linked.0.client.publish(subject.to_owned(), Bytes::from_static(word.as_bytes())).await?;
        Ok(true)
    }
}

fn silence(word: &str) -> BoxError {
    format!("the consumer has not answered {word}").into()
}
