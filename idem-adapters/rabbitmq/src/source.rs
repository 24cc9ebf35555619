//! One queue as a source of deliveries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use idem_core::{BoxError, Delivery, Error, Horizon, Ordering, Source, Terms};
use lapin::options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Consumer, ErrorKind};
use tokio::time::timeout;

use crate::acker::{RabbitMqAcker, release};
use crate::config::Config;
use crate::connection::Link;
use crate::delivery::delivery;
use crate::error::broker;
use crate::queue_type::{self, Expected};

/// One quorum queue of one RabbitMQ server, made by [`RabbitMq::queue`](crate::RabbitMq::queue) or
/// [`RabbitMq::declare`](crate::RabbitMq::declare).
///
/// Each [`open`](Source::open) makes a connection and a channel of its own, and ends those before: deliveries of the
/// earlier ones go back to the queue, and their ackers answer [`Settled::Stale`](idem_core::Settled::Stale).
pub struct Queue {
    config: Arc<Config>,
    name: Arc<str>,
    expected: Expected,
    /// The arguments of the queue, as far as they had to be learned.
    arguments: FieldTable,
    subscription: Option<Subscription>,
    /// After a message that lapin could not read: how many more are taken one at a time. All that is prefetched goes back
    /// when the connection ends, and each return counts against a delivery limit.
    narrow: u16,
}

/// What one `open` made.
struct Subscription {
    // In the order in which they are to be dropped.
    consumer: Consumer,
    channel: Channel,
    link: Link,
    /// Whether the stream may still be polled: after its end it stays pending for ever.
    live: bool,
    /// The lane of its deliveries, where an order is asked for.
    lane: Option<u64>,
    /// How many deliveries may be unsettled when all goes well.
    in_flight: u16,
    /// Whether one at a time is taken instead.
    narrow: bool,
    /// Its consumer was cancelled, to be followed by a wide one.
    cancelled: bool,
    /// The tag of the last delivery.
    tag: u64,
}

/// The limit to what a broker that does not answer can delay a shutdown by.
const DRAIN: Duration = Duration::from_secs(10);

impl Queue {
    pub(crate) fn new(config: Arc<Config>, name: String, expected: Expected, arguments: FieldTable) -> Self {
        Self { config, name: name.into(), expected, arguments, subscription: None, narrow: 0 }
    }

    /// The queue and where it is, for errors.
    fn place(&self) -> String {
        format!("queue `{}` on {}", self.name, self.config.address)
    }

    fn ended(&self, source: impl Into<BoxError>) -> BoxError {
        broker(format!("the subscription to {} has ended", self.place()), source).into()
    }

    fn broken(&mut self, error: lapin::Error) -> BoxError {
        if !matches!(error.kind(), ErrorKind::ParsingError(_)) {
            return self.ended(error);
        }
        if let Some(Subscription { in_flight, tag, .. }) = self.subscription {
            self.narrow = in_flight;
            tracing::error!(
                queue = %self.name,
                delivery_tag = tag + 1,
                "lapin cannot read a message; one at a time is taken until it is out of the way, so that no other is returned \
                 again"
            );
        }
        let what = format!(
            "lapin cannot read a message of {}, and ends the connection at it: look for a message id, a type or a \
             header's name that is not UTF-8, and take that message out of the queue by hand",
            self.place()
        );
        broker(what, error).into()
    }

    async fn subscribe(&self, link: Link, terms: &Terms) -> lapin::Result<Subscription> {
        let channel = link.connection.create_channel().await?;
        let narrow = self.narrow > 0;
        let consumer = consume(&channel, &self.name, if narrow { 1 } else { terms.in_flight }).await?;
        let lane = (terms.ordering == Ordering::Queue).then_some(0);
        let in_flight = terms.in_flight;
        Ok(Subscription { consumer, channel, link, live: true, lane, in_flight, narrow, cancelled: false, tag: 0 })
    }

    fn check(&self, terms: &Terms) -> Result<(), Error> {
        if terms.in_flight == 0 {
            return Err(Error::Refused(
                "0 deliveries in flight mean no limit to RabbitMQ, and all of the queue in memory: allow at least 1"
                    .to_owned(),
            ));
        }
        if !matches!(terms.ordering, Ordering::None | Ordering::Queue) {
            return Err(Error::Refused(format!(
                "RabbitMQ knows neither partitions nor keys, so that it cannot keep the order {:?} of {}: ask for \
                 Ordering::Queue, or for Ordering::None; messages that need no order among each other can go to \
                 different queues",
                terms.ordering,
                self.place()
            )));
        }
        if terms.deadline > self.config.consumer_timeout / 2 {
            tracing::warn!(
                queue = %self.name,
                deadline = ?terms.deadline,
                consumer_timeout = ?self.config.consumer_timeout,
                "RabbitMQ takes deliveries back that are unsettled for longer than its consumer timeout, and a delivery \
                 may have to wait before its handler runs: raise consumer_timeout on the server (and say so by \
                 .consumer_timeout), or lower the deadline"
            );
        }
        Ok(())
    }
}

impl Queue {
    /// With several consumers at a time, one could have the second message while another has the first.
    fn check_order(&self, terms: &Terms) -> Result<(), Error> {
        if terms.ordering != Ordering::Queue || queue_type::is_single_active(&self.arguments) {
            return Ok(());
        }
        let place = self.place();
        let refused = if self.expected == Expected::Unverified {
            format!(
                "{place} was taken on trust, so that it is not known whether it gives its messages to one consumer at a \
                 time, which Ordering::Queue needs: grant `configure` on it and use .queue(\"{}\")",
                self.name
            )
        } else {
            format!(
                "{place} gives its messages to several consumers at a time, and Ordering::Queue needs one that does not: \
                 declare a queue with x-single-active-consumer=true, bind it as this one is bound, and move what is left \
                 (a queue's arguments cannot be changed); or ask for no order"
            )
        };
        Err(Error::Refused(refused))
    }
}

impl Subscription {
    /// Cancels a consumer that takes one at a time, when enough has passed. With an order it stays until the next
    /// subscription: where a single consumer is cancelled, another one would go on beside what is still unsettled here.
    async fn widen(&mut self, left: u16, queue: &str) -> lapin::Result<()> {
        if !self.narrow || left > 0 || self.cancelled || self.lane.is_some() {
            return Ok(());
        }
        let options = BasicCancelOptions { nowait: false };
        tracing::debug!(queue, "as many messages have passed one at a time as were prefetched");
        self.channel.basic_cancel(self.consumer.tag(), options).await?;
        self.cancelled = true;
        Ok(())
    }

    async fn consume_wide(&mut self, queue: &str) -> lapin::Result<()> {
        self.consumer = consume(&self.channel, queue, self.in_flight).await?;
        (self.narrow, self.cancelled) = (false, false);
        Ok(())
    }
}

async fn consume(channel: &Channel, queue: &str, in_flight: u16) -> lapin::Result<Consumer> {
    // Before the consumer, which takes its limit from it. `global` is refused by quorum queues.
    channel.basic_qos(in_flight, BasicQosOptions { global: false }).await?;
    let options = BasicConsumeOptions { no_ack: false, ..Default::default() };
    channel.basic_consume(queue.into(), "".into(), options, FieldTable::default()).await
}

impl Source for Queue {
    type Acker = RabbitMqAcker;

    fn system(&self) -> &'static str {
        "rabbitmq"
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// The queue is looked at again each time: it may have been made anew as another one.
    async fn open(&mut self, terms: Terms) -> Result<(), BoxError> {
        self.check(&terms)?;
        self.close().await;
        let limits = self.config.limits(self.expected).await?;
        let link = Link::open(&self.config, &self.name).await?;
        let known = self.arguments.clone();
        self.arguments = queue_type::verify(&link, &self.config, &self.name, self.expected, limits, known).await?;
        if let Err(refused) = self.check_order(&terms) {
            link.close().await;
            return Err(refused.into());
        }
        let subscription = self.subscribe(link, &terms).await;
        let failed = |error| broker(format!("cannot subscribe to {}", self.place()), error);
        self.subscription = Some(subscription.map_err(failed)?);
        Ok(())
    }

    /// As the user has said by [`replay_horizon`](crate::Options::replay_horizon).
    fn horizon(&self) -> Horizon {
        self.config.replay_horizon.map_or(Horizon::Unstated, Horizon::Within)
    }

    /// The broker keeps none.
    fn has_positions(&self) -> bool {
        false
    }

    async fn next(&mut self) -> Result<(Delivery, RabbitMqAcker), BoxError> {
        let end = loop {
            let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else {
                return Err(self.ended("it is not open: open it"));
            };
            if let Err(error) = subscription.widen(self.narrow, &self.name).await {
                break self.ended(error);
            }
            match subscription.consumer.next().await {
                // After a loss the stream still yields what it had buffered; the server has taken that back.
                Some(Ok(message)) if !message.acker.usable() => subscription.tag = message.delivery_tag,
                Some(Ok(message)) => {
                    subscription.tag = message.delivery_tag;
                    self.narrow = self.narrow.saturating_sub(1);
                    let delivery = delivery(&self.name, message.data, message.redelivered, &message.properties);
                    let delivery = delivery.with_lane(subscription.lane);
                    return Ok((delivery, RabbitMqAcker::new(message.acker)));
                }
                Some(Err(error)) => break self.broken(error),
                // The end of the narrow consumer: all that it had was handed out.
                None if subscription.cancelled => match subscription.consume_wide(&self.name).await {
                    Ok(()) => tracing::info!(queue = %self.name, "all is taken as before"),
                    Err(error) => break self.ended(error),
                },
                // There is no error with it. From 4.3 on this is also what follows a consumer timeout.
                None => {
                    break self.ended(
                        "the server has cancelled the consumer: the queue was deleted, its leader was lost, or a \
                         delivery stayed unsettled for longer than the server's consumer timeout",
                    );
                }
            }
        };
        if let Some(subscription) = &mut self.subscription {
            subscription.live = false;
        }
        Err(end)
    }

    /// Gives up after 10 seconds without an answer: the server then takes all back when the connection ends.
    async fn drain(&mut self) {
        let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else { return };
        subscription.live = false;
        let _ = timeout(DRAIN, async {
            let tag = subscription.consumer.tag();
            subscription.channel.basic_cancel(tag, BasicCancelOptions { nowait: false }).await.ok()?;
            // What was prefetched comes first, then the end. Releasing it one by one, rather than by closing the
            // channel, keeps it from being counted as failed.
            while let Some(Ok(message)) = subscription.consumer.next().await {
                release(&message.acker).await.ok()?;
            }
            Some(())
        })
        .await;
    }

    /// Gives up after 10 seconds without an answer: the heartbeat ends the connection then.
    async fn close(&mut self) {
        let Some(Subscription { consumer, channel, link, .. }) = self.subscription.take() else { return };
        let _ = timeout(DRAIN, async {
            // A deliberate end of the channel has the server requeue at once, before the connection is gone.
            let _ = channel.close(200, "done".into()).await;
            link.close().await;
        })
        .await;
        drop(consumer);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.name)
            .field("config", &self.config)
            .field("open", &self.subscription.as_ref().is_some_and(|subscription| subscription.live))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RabbitMq;
    use crate::captured::captured;

    fn queue(consumer_timeout: Duration) -> Queue {
        let config = RabbitMq::options("amqp://u:s3ntinel@h").consumer_timeout(consumer_timeout).config().unwrap();
        Queue::new(Arc::new(config), "orders".to_owned(), Expected::Existing, FieldTable::default())
    }

    #[test]
    fn a_deadline_near_the_consumer_timeout_is_warned_about() {
        for (deadline, warned) in [(30, false), (31, true)] {
            let (text, subscriber) = captured();
            let terms = Terms { deadline: Duration::from_secs(deadline), ..Terms::new("billing", 1) };
            tracing::subscriber::with_default(subscriber, || queue(Duration::from_secs(60)).check(&terms)).unwrap();
            let text = text.to_string();
            assert_eq!(text.contains("WARN") && text.contains("orders"), warned, "{text}");
        }
    }

    #[test]
    fn a_queue_shows_no_password() {
        let queue = queue(Duration::from_secs(60));
        for text in [format!("{queue:?}"), queue.ended("so").to_string(), format!("{:?}", queue.ended("so"))] {
            assert!(text.contains("orders") && !text.contains("s3ntinel"), "{text}");
        }
    }
}
