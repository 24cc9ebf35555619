//! One queue as a source of deliveries.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{BoxError, Delivery, Error, Horizon, Ordering, Source, Terms};
use lapin::types::FieldTable;
use tokio::time::timeout;

use crate::acker::RabbitMqAcker;
use crate::config::Config;
use crate::connection::Link;
use crate::error::broker;
use crate::queue_type::{self, Expected};
use crate::single::Single;
use crate::wide::{End, Wide};

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
    /// How many more messages are taken one at a time, by a connection that reads what lapin cannot. All that is prefetched
    /// goes back when lapin ends its connection at a message, and each return counts against a delivery limit.
    narrow: u16,
}

/// What one `open` made.
struct Subscription {
    by: By,
    /// Whether it may still be asked for deliveries.
    live: bool,
    /// The lane of its deliveries, where an order is asked for.
    lane: Option<u64>,
    /// How many deliveries may be unsettled.
    in_flight: u16,
}

/// By what the subscription is.
#[allow(clippy::large_enum_variant, reason = "there is one")]
enum By {
    Lapin(Wide),
    Bare(Single),
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

    /// The end at a message that lapin cannot read.
    fn unreadable(&mut self, tag: u64, in_flight: u16, error: lapin::Error) -> BoxError {
        self.narrow = in_flight;
        tracing::error!(
            queue = %self.name,
            delivery_tag = tag + 1,
            "lapin cannot read a message; one at a time is taken until it is out of the queue, so that no other is returned \
             again"
        );
        let what = format!(
            "lapin cannot read a message of {}, and has ended the connection at it: a message id, a type, a routing key or a \
             header's name is not UTF-8. It is taken out of the queue by another connection, and is a dead letter then",
            self.place()
        );
        broker(what, error).into()
    }

    /// The next delivery; `None` once enough messages have passed one at a time.
    async fn take(&mut self) -> Result<Option<(Delivery, RabbitMqAcker)>, BoxError> {
        let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else {
            return Err(self.ended("it is not open: open it"));
        };
        let lane = subscription.lane;
        let taken = match &mut subscription.by {
            By::Bare(single) => single.next(&self.name, &mut self.narrow).await,
            By::Lapin(wide) => match wide.next(&self.name).await {
                Ok(taken) => Ok(Some(taken)),
                Err(End::Unreadable(error)) => {
                    let (tag, in_flight) = (wide.tag, subscription.in_flight);
                    return Err(self.unreadable(tag, in_flight, error));
                }
                Err(End::Other(error)) => Err(error),
            },
        };
        let taken = taken.map_err(|error| self.ended(error))?;
        Ok(taken.map(|(delivery, acker)| (delivery.with_lane(lane), acker)))
    }

    /// Follows a subscription that took one at a time, and of which nothing is unsettled, by one of lapin's. Cancel safe: if
    /// it is dropped, the old one is still there, and is followed the next time.
    async fn widen(&mut self) -> Result<(), BoxError> {
        let Some(Subscription { lane, in_flight, .. }) = self.subscription else { return Ok(()) };
        let link = Link::open(&self.config, &self.name).await?;
        let by = self.wide(link, in_flight).await?;
        tracing::info!(queue = %self.name, "as many messages have passed one at a time as were prefetched; all is taken as before");
        if let Some(old) = self.subscription.replace(Subscription { by, live: true, lane, in_flight }) {
            old.by.close().await;
        }
        Ok(())
    }

    async fn wide(&self, link: Link, in_flight: u16) -> Result<By, BoxError> {
        let subscribed = Wide::open(link, &self.name, in_flight).await;
        let failed = |error| broker(format!("cannot subscribe to {}", self.place()), error);
        Ok(By::Lapin(subscribed.map_err(failed)?))
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

impl By {
    async fn close(self) {
        let close = async {
            match self {
                Self::Lapin(wide) => wide.close().await,
                Self::Bare(single) => single.close().await,
            }
        };
        let _ = timeout(DRAIN, close).await;
    }
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
        let in_flight = terms.in_flight;
        let by = if self.narrow > 0 {
            link.close().await;
            By::Bare(Single::open(&self.config, &self.name, in_flight).await?)
        } else {
            self.wide(link, in_flight).await?
        };
        let lane = (terms.ordering == Ordering::Queue).then_some(0);
        self.subscription = Some(Subscription { by, live: true, lane, in_flight });
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

    fn has_partition_keys(&self) -> bool {
        false
    }

    /// The consumer timeout, as the user has said it by [`consumer_timeout`](crate::Options::consumer_timeout).
    fn unsettled_limit(&self) -> Option<Duration> {
        Some(self.config.consumer_timeout)
    }

    async fn next(&mut self) -> Result<(Delivery, RabbitMqAcker), BoxError> {
        let end = loop {
            match self.take().await {
                Ok(Some(taken)) => return Ok(taken),
                Ok(None) => match self.widen().await {
                    Ok(()) => {}
                    Err(error) => break error,
                },
                Err(error) => break error,
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
        let drained = timeout(DRAIN, async {
            match &mut subscription.by {
                By::Lapin(wide) => wide.drain().await.map_err(BoxError::from),
                By::Bare(single) => single.drain().await,
            }
        });
        if let Ok(Err(error)) = drained.await {
            tracing::debug!(error, "what was prefetched goes back with the connection");
        }
    }

    /// Gives up after 10 seconds without an answer: the heartbeat ends the connection then.
    async fn close(&mut self) {
        if let Some(subscription) = self.subscription.take() {
            subscription.by.close().await;
        }
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
