//! The server's status of a pull, and the end of a subscription.

use async_nats::{Message, StatusCode};
use idem_core::BoxError;
use tokio::time::Instant;

use super::{PAUSE, Puller, SILENCE};
use crate::connection::Lost;

impl Puller {
    /// Handles the server's status of a pull.
    pub(super) fn status(&mut self, message: &Message) -> Result<(), BoxError> {
        let ours = message.subject.rsplit('.').next().is_some_and(|token| token == self.number.to_string());
        let text = message.description.as_deref().unwrap_or_default();
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(()),
            _ if !ours => Ok(()),
            // The pull has expired.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                (self.asked, self.unanswered) = (0, 0);
                Ok(())
            }
            // This is normal for a moment while a cluster elects a leader.
            Some(StatusCode::NO_RESPONDERS) if self.unanswered == 0 => {
                self.unanswered += 1;
                self.pause();
                Ok(())
            }
            Some(StatusCode::NO_RESPONDERS) => {
                Err("the server knows no such consumer: it was deleted, or JetStream is not ready".into())
            }
            // Other workers use all that the consumer allows.
            Some(_) if text.contains("MaxAckPending") || text.contains("MaxWaiting") => {
                tracing::debug!(consumer = self.pull.consumer, text, "the consumer allows no pull now");
                self.pause();
                Ok(())
            }
            Some(status) => Err(format!("the server ended the pull: {status} {text}").into()),
            None => {
                Err("received a message that is not from JetStream: the account may import it under other subjects"
                    .into())
            }
        }
    }

    /// Returns the error of a lost connection. async-nats silently closes the connection at headers that it cannot
    /// read, and does so again at the next attempt.
    pub(super) fn lost(&self) -> BoxError {
        if self.began.is_some_and(|began| began.elapsed() < SILENCE) {
            let what = "the connection to NATS was lost as soon as it was asked for messages: if that goes on, look for a \
                        message with headers that are not UTF-8 (nats stream view), which async-nats cannot read, and \
                        take it out of the stream by hand (nats stream rmm)";
            return what.into();
        }
        Lost.into()
    }

    fn pause(&mut self) {
        (self.asked, self.paused) = (0, Instant::now() + PAUSE);
    }
}
