//! One queue of a source, and its subscription.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::StreamExt;
use idem_core::{BoxError, Delivery, DeliveryOrder, Error};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer, ErrorKind};

use crate::acker::RabbitMqAcker;
use crate::acks::{Acks, nack};
use crate::address::Address;
use crate::config::Config;
use crate::connection::Link;
use crate::delivery::delivery;
use crate::error::CANCELLED;
use crate::limits::{self, Limits};
use crate::queue_type::{self, Examined, Found};
use crate::raw::Raw;
use crate::request::{Expected, Request};

/// One queue of a source.
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    pub(crate) request: Request,
    /// The arguments of the queue that had to be learned.
    arguments: FieldTable,
    /// Whether the queue did not exist when this process started.
    is_new: bool,
    subscription: Option<Subscribed>,
}

impl Member {
    pub(crate) fn new(name: String, request: Request, found: Found) -> Self {
        let Found { arguments, is_new } = found;
        Self { name: name.into(), request, arguments, is_new, subscription: None }
    }

    /// Warns once if a worker that is not new has a new queue.
    pub(crate) fn warn_if_new(&mut self) {
        if std::mem::take(&mut self.is_new) {
            tracing::warn!(
                queue = %self.name,
                "this worker has handled messages before, and its queue did not exist and was declared now: if it was deleted, \
                 its messages are lost"
            );
        }
    }

    /// Returns the queue and its address, for errors.
    pub(crate) fn place(&self, address: &Address) -> String {
        format!("queue `{}` on {address}", self.name)
    }

    /// Checks the queue again: it may have been recreated with other arguments.
    pub(crate) async fn check(&mut self, config: &Config, raw: &mut Raw, order: DeliveryOrder) -> Result<(), Error> {
        let limits = Limits::of(raw, config, self.request.unlimited);
        let queue = Examined { address: &config.address, name: &self.name, request: &self.request, limits };
        self.arguments = queue_type::verify(raw, queue, Some(self.arguments.clone())).await?.arguments;
        if order == DeliveryOrder::Queue { self.check_order(&config.address) } else { Ok(()) }
    }

    /// Reports whether the server deletes the queue when it has had no consumer for some time.
    pub(crate) fn deletes_returned(&self) -> bool {
        limits::deletes_returned(&self.arguments)
    }

    /// Refuses a queue that cannot keep its order: with several consumers at a time, one could receive the second
    /// message while another has the first.
    fn check_order(&self, address: &Address) -> Result<(), Error> {
        if queue_type::is_single_active(&self.arguments) {
            return Ok(());
        }
        let place = self.place(address);
        let refused = match self.request.expected {
            Expected::Unverified => format!(
                "{place} was not verified, so it is unknown whether it has a single active consumer, which \
                 DeliveryOrder::Queue needs: grant `configure` on it and use .queue(\"{}\")",
                self.name
            ),
            Expected::Classic => format!(
                "{place} is a classic queue, which may lose messages, and DeliveryOrder::Queue must miss none: declare a quorum \
                 queue with x-single-active-consumer=true; or ask for no order"
            ),
            _ => format!(
                "{place} gives its messages to several consumers at a time, and DeliveryOrder::Queue needs one that does not: \
                 declare a queue with another name and x-single-active-consumer=true, give it the bindings of this queue, \
                 and move the remaining messages to it (a queue's arguments cannot be changed); or ask for no order"
            ),
        };
        Err(Error::Config(refused))
    }

    /// Subscribes on `link`.
    pub(crate) async fn subscribe(
        &mut self,
        config: &Config,
        link: &mut Link,
        max_unsettled: u16,
    ) -> Result<(), Error> {
        let subscribed = Subscribed::open(link, &self.name, max_unsettled, self.request.consumer.clone()).await;
        let failed = |error| Error::broker(format!("cannot subscribe to {}", self.place(&config.address)), error);
        self.subscription = Some(subscribed.map_err(failed)?);
        Ok(())
    }

    /// Returns the next delivery, if there is one. Must not be called again after an error: the stream then stays pending
    /// forever.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<(Delivery, RabbitMqAcker), End>> {
        let Some(subscribed) = &mut self.subscription else { return Poll::Pending };
        loop {
            return Poll::Ready(match ready!(subscribed.consumer.poll_next_unpin(context)) {
                // After a loss the stream still yields buffered messages, which the server has taken back.
                Some(Ok(message)) if !message.acker.usable() => {
                    subscribed.tag = message.delivery_tag;
                    continue;
                }
                Some(Ok(mut message)) => {
                    subscribed.tag = message.delivery_tag;
                    subscribed.acks.deliver(subscribed.tag);
                    let delivery = delivery(&self.name, &mut message);
                    Ok((delivery, RabbitMqAcker::new(&subscribed.acks, subscribed.tag, message.acker)))
                }
                Some(Err(error)) if matches!(error.kind(), ErrorKind::ParsingError(_)) => {
                    Err(End::Unreadable { tag: subscribed.tag, error })
                }
                Some(Err(error)) => Err(End::Other(error.into())),
                // There is no error with it. Since 4.3, a consumer timeout ends the stream like this too.
                None => Err(End::Other(CANCELLED.into())),
            });
        }
    }

    /// Ends the subscription. The stream yields the prefetched messages before its end. They are released one by one,
    /// because RabbitMQ counts a message returned by a closed channel as failed.
    pub(crate) async fn drain(&mut self) -> lapin::Result<()> {
        let Some(Subscribed { consumer, channel, .. }) = &mut self.subscription else { return Ok(()) };
        channel.basic_cancel(consumer.tag(), BasicCancelOptions { nowait: false }).await?;
        while let Some(Ok(message)) = consumer.next().await {
            nack(&message.acker).await?;
        }
        Ok(())
    }

    /// Takes the subscription, so that it can be closed.
    pub(crate) fn leave(&mut self) -> Option<Subscribed> {
        self.subscription.take()
    }
}

/// The subscription, with a prefetch of all that may be unsettled.
pub(crate) struct Subscribed {
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

impl Subscribed {
    async fn open(link: &mut Link, queue: &str, max_unsettled: u16, arguments: FieldTable) -> lapin::Result<Self> {
        let channel = link.connection.create_channel().await?;
        // Before the consumer, which takes its limit from it. Quorum queues refuse `global`.
        channel.basic_qos(max_unsettled, BasicQosOptions { global: false }).await?;
        let options = BasicConsumeOptions { no_ack: false, ..Default::default() };
        let consumer = channel.basic_consume(queue.into(), "".into(), options, arguments).await?;
        Ok(Self { consumer, channel, acks: Acks::start(&mut link.watch), tag: 0 })
    }

    /// Closes the channel explicitly, so that the server requeues at once, before the connection ends.
    pub(crate) async fn close(self) {
        let _ = self.channel.close(200, "done".into()).await;
    }
}
