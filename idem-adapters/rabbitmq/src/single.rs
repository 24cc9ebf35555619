//! The subscription after a message that lapin cannot parse: one message at a time, on a connection that can parse it.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use idem_core::{Acker, BoxError, Delivery, Error};
use lapin::types::FieldTable;

use crate::acker::RabbitMqAcker;
use crate::bare::{Bare, Consumer};
use crate::config::Config;
use crate::unreadable;

/// A delivery, or `None` once enough messages have passed one at a time.
pub(crate) type Taken = Option<(Delivery, RabbitMqAcker)>;

pub(crate) struct Single {
    consumer: Consumer,
    /// How many messages to take one at a time after each one that lapin cannot parse: as many as lapin would have
    /// prefetched.
    max_unsettled: u16,
}

impl Single {
    pub(crate) async fn open(
        config: &Config,
        queue: &str,
        max_unsettled: u16,
        arguments: FieldTable,
    ) -> Result<Self, Error> {
        Ok(Self { consumer: Bare::consume(config, queue, arguments).await?, max_unsettled })
    }

    /// Returns the next delivery and updates `left`; `None` when `left` is 0 and all are settled.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        queue: &Arc<str>,
        left: &mut u16,
    ) -> Poll<Result<Taken, BoxError>> {
        while let Some(message) = ready!(self.consumer.poll_next(context)) {
            let message = message?;
            let tag = message.tag;
            let delivery = unreadable::read(queue, message);
            let taken_out = delivery.unrepresentable().is_some();
            let behind = if taken_out { self.max_unsettled } else { left.saturating_sub(1) };
            let acker = RabbitMqAcker::from(self.consumer.acker(tag, behind == 0));
            // The connection has ended: the server has taken back what was buffered.
            if acker.is_live() {
                if taken_out {
                    tracing::error!(
                        queue = %queue,
                        why = delivery.unrepresentable(),
                        "a message that lapin cannot read is taken out of the queue"
                    );
                }
                *left = behind;
                return Poll::Ready(Ok(Some((delivery, acker))));
            }
        }
        Poll::Ready(if *left == 0 { Ok(None) } else { Err("the connection has ended".into()) })
    }

    /// Ends the subscription, and releases messages that were not returned.
    pub(crate) async fn drain(&mut self) -> Result<(), BoxError> {
        self.consumer.cancel().await?;
        while let Some(Ok(message)) = self.consumer.next().await {
            self.consumer.acker(message.tag, false).release().await?;
        }
        Ok(())
    }

    pub(crate) async fn close(self) {
        self.consumer.close().await;
    }
}
