//! The subscription on lapin's connection, with a prefetch of all that may be unsettled.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use idem_core::{BoxError, Delivery};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer, ErrorKind};

use crate::acker::RabbitMqAcker;
use crate::acks::Acks;
use crate::connection::Link;
use crate::delivery::{Way, delivery};
use crate::sending::nack;

pub(crate) struct Wide {
    // In drop order.
    consumer: Consumer,
    channel: Channel,
    acks: Arc<Acks>,
    /// The tag of the last delivery.
    tag: u64,
}

/// Why a subscription on lapin's connection has ended.
pub(crate) enum End {
    /// lapin cannot parse a message. With several queues it is unknown which one had it: the connection ends for all of
    /// them.
    Unreadable {
        tag: u64,
        error: lapin::Error,
    },
    Other(BoxError),
}

impl Wide {
    pub(crate) async fn open(
        link: &mut Link,
        queue: &str,
        max_unsettled: u16,
        arguments: FieldTable,
    ) -> lapin::Result<Self> {
        let channel = link.connection.create_channel().await?;
        // Before the consumer, which takes its limit from it. Quorum queues refuse `global`.
        channel.basic_qos(max_unsettled, BasicQosOptions { global: false }).await?;
        let options = BasicConsumeOptions { no_ack: false, ..Default::default() };
        let consumer = channel.basic_consume(queue.into(), "".into(), options, arguments).await?;
        Ok(Self { consumer, channel, acks: Acks::start(&mut link.watch), tag: 0 })
    }

    /// Must not be called again after an error: the stream then stays pending forever.
    pub(crate) fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        queue: &Arc<str>,
    ) -> Poll<Result<(Delivery, RabbitMqAcker), End>> {
        loop {
            return Poll::Ready(match ready!(self.consumer.poll_next_unpin(context)) {
                // After a loss the stream still yields buffered messages, which the server has taken back.
                Some(Ok(message)) if !message.acker.usable() => {
                    self.tag = message.delivery_tag;
                    continue;
                }
                Some(Ok(message)) => {
                    self.tag = message.delivery_tag;
                    self.acks.deliver(self.tag);
                    let (exchange, routing_key) = (message.exchange.as_str(), message.routing_key.as_str());
                    let way = Way { exchange, routing_key, redelivered: message.redelivered };
                    let delivery = delivery(queue, message.data, way, &message.properties);
                    Ok((delivery, RabbitMqAcker::new(&self.acks, self.tag, message.acker)))
                }
                Some(Err(error)) if matches!(error.kind(), ErrorKind::ParsingError(_)) => {
                    Err(End::Unreadable { tag: self.tag, error })
                }
                Some(Err(error)) => Err(End::Other(error.into())),
                // There is no error with it. Since 4.3, a consumer timeout ends the stream like this too.
                None => Err(End::Other(crate::error::CANCELLED.into())),
            });
        }
    }

    /// Ends the subscription. The stream yields the prefetched messages before its end. They are released one by one,
    /// because RabbitMQ counts a message returned by a closed channel as failed.
    pub(crate) async fn drain(&mut self) -> lapin::Result<()> {
        self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions { nowait: false }).await?;
        while let Some(Ok(message)) = self.consumer.next().await {
            nack(&message.acker).await?;
        }
        Ok(())
    }

    /// Closes the channel explicitly, so that the server requeues at once, before the connection ends.
    pub(crate) async fn close(self) {
        let _ = self.channel.close(200, "done".into()).await;
    }
}
