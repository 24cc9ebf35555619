//! Queues as a source of deliveries.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join_all;
use idem_core::{BoxError, Delivery, DeliveryOrder, Error, Lag, ReplayWindow, Source, SubscribeOptions};
use tokio::time::timeout;

use crate::acker::RabbitMqAcker;
use crate::config::Config;
use crate::connection::Link;
use crate::error::{self, silent};
use crate::lag::lag;
use crate::member::{End, Member};
use crate::queue_type::Found;
use crate::raw::{self, Kept, Raw};
use crate::request::Request;
use crate::unreadable;

/// The longest time that an unresponsive broker can delay a shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// The time limit for all requests for one queue and its subscription. lapin waits forever for an answer if its
/// connection is lost.
const SUBSCRIBE: Duration = Duration::from_secs(60);

/// A quorum queue of a RabbitMQ server, returned by [`RabbitMq::queue`](crate::RabbitMq::queue) or
/// [`RabbitMq::declare`](crate::RabbitMq::declare); or several queues joined by [`and`](Self::and).
///
/// Each [`subscribe`](Source::subscribe) opens a new connection with one channel per queue, and closes the earlier
/// ones. Their deliveries go back to the queues, and their ackers return [`Settled::Stale`](idem_core::Settled::Stale).
///
/// ```no_run
/// # async fn queues(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
/// let orders = rabbit.queue("orders").await?;
/// let both = orders.and(rabbit.queue("refunds").await?)?;
/// # Ok(()) }
/// ```
pub struct Queue {
    config: Arc<Config>,
    /// The names of all queues.
    name: Arc<str>,
    /// At least one. Declared before `link`, so that it is dropped first.
    members: Vec<Member>,
    link: Option<Link>,
    subscription: Option<Subscription>,
    /// Whether lapin closed the last connection at a message that it cannot parse.
    is_unreadable: bool,
    /// The messages that lapin cannot parse, which come before all others.
    unreadable: VecDeque<(Delivery, RabbitMqAcker)>,
    /// Their connections. They last until all of these messages are settled or the source is closed.
    kept: Vec<Weak<Kept>>,
    /// The member to poll first for the next delivery.
    turn: usize,
}

/// The state of one subscription, made by `subscribe`.
#[derive(Clone, Copy)]
struct Subscription {
    /// Whether it may still return deliveries.
    live: bool,
    /// Whether the deliveries of each queue share an ordering key.
    ordered: bool,
    /// The index of the host that it is connected to.
    host: usize,
}

impl Queue {
    pub(crate) fn new(config: Arc<Config>, name: String, request: Request, found: Found) -> Self {
        let member = Member::new(name, request, found);
        let name = Arc::clone(&member.name);
        Self {
            config,
            name,
            members: vec![member],
            link: None,
            subscription: None,
            is_unreadable: false,
            unreadable: VecDeque::new(),
            kept: Vec::new(),
            turn: 0,
        }
    }

    /// Adds another queue of the same server, for one worker on one connection. Each delivery has its own queue's name
    /// as its source.
    ///
    /// Each queue has its own prefetch, which limits its unsettled deliveries, and the queues take turns: a backlog in
    /// one does not delay the others. With an order, the deliveries of each queue share an ordering key. If one queue
    /// cannot be consumed, the worker resubscribes to all of them.
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// let both = rabbit.queue("orders").await?.and(rabbit.declare("refunds").await?)?;
    /// # let _ = both;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] if the queues come from different [`RabbitMq`](crate::RabbitMq)s, or one is added twice.
    pub fn and(mut self, mut other: Self) -> Result<Self, Error> {
        if !Arc::ptr_eq(&self.config, &other.config) {
            return Err(Error::Config(format!(
                "queues `{}` and `{}` belong to different connections, but a worker has one: make both by the same RabbitMq",
                self.name, other.name
            )));
        }
        self.members.append(&mut other.members);
        let mut names: Vec<_> = self.members.iter().map(|member| &*member.name).collect();
        let joined = names.join(", ");
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::Config(format!("queue `{}` is given twice to one worker: give it once", twice[0])));
        }
        self.name = joined.into();
        Ok(self)
    }

    /// Returns the queues and their address, for errors.
    fn place(&self) -> String {
        match &self.members[..] {
            [member] => member.place(&self.config.address),
            _ => format!("the queues {} on {}", self.name, self.config.address),
        }
    }

    /// Refuses options that RabbitMQ cannot support, whatever the queues are.
    fn check(&self, options: &SubscribeOptions) -> Result<(), Error> {
        let (config, order) = (&self.config, options.order);
        if !matches!(order, DeliveryOrder::None | DeliveryOrder::Queue) {
            return Err(Error::Config(format!(
                "RabbitMQ has neither partitions nor keys, so it cannot keep the order {order:?} of {}: ask for \
                 DeliveryOrder::Queue, or for DeliveryOrder::None; messages that need no order among each other can go to \
                 different queues",
                self.place()
            )));
        }
        if options.handler_timeout > config.consumer_timeout / 2 {
            tracing::warn!(
                queue = %self.name,
                handler_timeout = ?options.handler_timeout,
                consumer_timeout = ?config.consumer_timeout,
                "RabbitMQ takes deliveries back that are unsettled for longer than its consumer timeout, and a delivery \
                 may have to wait before its handler runs: raise consumer_timeout on the server (and say so by \
                 .consumer_timeout), or lower the handler timeout"
            );
        }
        Ok(())
    }

    fn ended(&self, place: &str, source: impl Into<BoxError>) -> BoxError {
        Error::broker(format!("the subscription to {place} has ended"), source).into()
    }

    /// Takes the messages that lapin cannot parse out of the queues. The client's error does not say which queue had one.
    async fn take_out(&mut self, options: &SubscribeOptions) -> Result<(), BoxError> {
        let (ordered, count) = (options.order == DeliveryOrder::Queue, options.max_unsettled);
        self.kept.retain(|kept| kept.strong_count() > 0);
        for (at, member) in self.members.iter_mut().enumerate() {
            let arguments = member.request.consumer.clone();
            let (kept, taken) = unreadable::take_out(&self.config, &member.name, count, arguments, ordered).await?;
            self.kept.push(kept);
            let key = ordered.then_some(at as u64);
            self.unreadable.extend(taken.into_iter().map(|(delivery, acker)| (delivery.with_ordering_key(key), acker)));
        }
        Ok(())
    }

    /// Returns the next delivery of any member, and the index of that member. Cancel safe.
    async fn any(&mut self) -> (usize, Result<(Delivery, RabbitMqAcker), End>) {
        let (members, turn) = (&mut self.members, &mut self.turn);
        let any = poll_fn(|context| {
            for step in 0..members.len() {
                let at = (*turn + step) % members.len();
                if let Poll::Ready(taken) = members[at].poll_next(context) {
                    *turn = at + 1;
                    return Poll::Ready((at, taken));
                }
            }
            Poll::Pending
        });
        match &mut self.link {
            Some(link) => tokio::select! {
                biased;
                never = link.watch.panicked() => match never {},
                taken = any => taken,
            },
            None => any.await,
        }
    }

    /// Returns the next delivery. Cancel safe.
    async fn take(&mut self) -> Result<(Delivery, RabbitMqAcker), BoxError> {
        let Some(subscription) = self.subscription.filter(|subscription| subscription.live) else {
            return Err(self.ended(&self.place(), "it has no subscription: call subscribe first"));
        };
        if let Some(taken) = self.unreadable.pop_front() {
            return Ok(taken);
        }
        match self.any().await {
            (at, Ok((delivery, acker))) => {
                let key = subscription.ordered.then_some(at as u64);
                Ok((delivery.with_ordering_key(key), acker))
            }
            (_, Err(End::Unreadable { tag, error })) => {
                self.is_unreadable = true;
                tracing::error!(
                    queue = %self.name,
                    delivery_tag = tag + 1,
                    "lapin cannot parse a message; it is taken out of the queue before the next subscription"
                );
                Err(error::unreadable(&self.place(), error).into())
            }
            (at, Err(End::Other(error))) => Err(self.ended(&self.members[at].place(&self.config.address), error)),
        }
    }

    /// Ends the subscription. Messages that lapin cannot parse and that were handed out can still be settled.
    async fn leave(&mut self) {
        self.subscription = None;
        self.unreadable.clear();
        // Take all first, so that none is left behind if the timeout expires before its turn.
        let link = self.link.take();
        let subscriptions: Vec<_> = self.members.iter_mut().filter_map(Member::leave).collect();
        let close = async {
            for subscription in subscriptions {
                subscription.close().await;
            }
            if let Some(link) = link {
                link.close().await;
            }
        };
        let _ = timeout(DRAIN, close).await;
    }

    /// Subscribes to each queue.
    async fn subscribe(&mut self, link: Link, options: &SubscribeOptions) -> Result<(), BoxError> {
        let link = self.link.insert(link);
        for member in &mut self.members {
            member.subscribe(&self.config, link, options.max_unsettled).await?;
        }
        Ok(())
    }
}

impl Source for Queue {
    type Acker = RabbitMqAcker;

    fn system(&self) -> &'static str {
        "rabbitmq"
    }

    /// For several queues, all their names. Each delivery has the name of its own queue.
    fn name(&self) -> &str {
        &self.name
    }

    /// Checks each queue again each time: it may have been recreated with other arguments. One that is gone is an error, also
    /// if it was declared: its messages are lost.
    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.check(&options)?;
        self.leave().await;
        let limit = SUBSCRIBE.saturating_mul(u32::try_from(self.members.len()).unwrap_or(u32::MAX));
        let mut raw = Raw::open(&self.config).await?;
        let host = raw.host;
        let checked = timeout(limit, async {
            for member in &mut self.members {
                member.check(&self.config, &mut raw, options.order).await?;
            }
            raw.close().await;
            if self.is_unreadable {
                self.take_out(&options).await?;
            }
            Ok::<_, BoxError>(())
        });
        if let Err(error) = checked.await.unwrap_or_else(|_| Err(silent(limit).into())) {
            self.config.first.leave(host);
            return Err(error);
        }
        let link = Link::open(&self.config, &self.name).await?;
        let host = link.host;
        let subscribed = timeout(limit, self.subscribe(link, &options)).await;
        if let Err(error) = subscribed.unwrap_or_else(|_| Err(silent(limit).into())) {
            self.config.first.leave(host);
            self.close().await;
            return Err(error);
        }
        if options.has_history {
            self.members.iter_mut().for_each(Member::warn_if_new);
        }
        let ordered = options.order == DeliveryOrder::Queue;
        self.subscription = Some(Subscription { live: true, ordered, host });
        self.is_unreadable = false;
        Ok(())
    }

    /// Returns the [`replay_window`](crate::Options::replay_window) option.
    fn replay_window(&self) -> ReplayWindow {
        self.config.replay_window.map_or(ReplayWindow::Unknown, ReplayWindow::Within)
    }

    /// RabbitMQ has no positions.
    fn has_positions(&self) -> bool {
        false
    }

    fn has_partition_keys(&self) -> bool {
        false
    }

    /// Returns the [`consumer_timeout`](crate::Options::consumer_timeout) option; `None` for a queue whose server may
    /// delete what a worker releases.
    fn unsettled_limit(&self) -> Option<Duration> {
        let deletes = self.members.iter().any(Member::deletes_returned);
        (!deletes).then_some(self.config.consumer_timeout)
    }

    /// The prefetch applies to each queue.
    fn queues(&self) -> usize {
        self.members.len()
    }

    fn lag(&self) -> Option<Lag> {
        let connection = Arc::downgrade(&self.link.as_ref()?.connection);
        Some(lag(connection, self.members.iter().map(|member| Arc::clone(&member.name)).collect()))
    }

    async fn next(&mut self) -> Result<(Delivery, RabbitMqAcker), BoxError> {
        let taken = self.take().await;
        if taken.is_err()
            && let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live)
        {
            subscription.live = false;
            self.config.first.leave(subscription.host);
        }
        taken
    }

    /// Gives up after 10 seconds without an answer. The server then takes everything back when the connection ends.
    async fn drain(&mut self) {
        let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else { return };
        subscription.live = false;
        self.unreadable.clear();
        let drained = timeout(DRAIN, async {
            for member in &mut self.members {
                if let Err(error) = member.drain().await {
                    tracing::debug!(queue = %member.name, %error, "prefetched messages return when the connection closes");
                }
            }
        });
        let _ = drained.await;
    }

    /// Gives up after 10 seconds without an answer. The heartbeat then ends the connection.
    async fn close(&mut self) {
        let kept: Vec<_> = self.kept.drain(..).filter_map(|kept| kept.upgrade()).collect();
        // Together: all are taken at once, so that none is left behind if this future is dropped.
        let ended = timeout(DRAIN, join_all(kept.iter().map(|kept| raw::end(kept))));
        let _ = tokio::join!(ended, self.leave());
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use lapin::types::FieldTable;

    use super::*;
    use crate::RabbitMq;
    use crate::request::Expected;

    fn queue() -> Queue {
        let options = RabbitMq::options("amqp://u:s3ntinel@h").consumer_timeout(Duration::from_secs(60));
        let found = Found { arguments: FieldTable::default(), is_new: false };
        let config = Arc::new(options.config().unwrap());
        Queue::new(config, "orders".to_owned(), Request::new(Expected::Existing), found)
    }

    #[test]
    fn a_handler_timeout_near_the_consumer_timeout_is_warned_about() {
        for (seconds, warned) in [(30, false), (31, true)] {
            let (text, subscriber) = idem_conformance::captured();
            let options = SubscribeOptions::new("billing", 1).with_handler_timeout(Duration::from_secs(seconds));
            tracing::subscriber::with_default(subscriber, || queue().check(&options)).unwrap();
            let text = text.to_string();
            assert_eq!(text.contains("WARN") && text.contains("orders"), warned, "{text}");
        }
    }

    #[test]
    fn a_queue_shows_no_password() {
        let queue = queue();
        let ended = queue.ended(&queue.place(), "so");
        for text in [format!("{queue:?}"), ended.to_string(), format!("{ended:?}")] {
            assert!(text.contains("orders") && !text.contains("s3ntinel"), "{text}");
        }
    }
}
