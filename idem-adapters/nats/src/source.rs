//! The stream as a source of deliveries.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::stream;
use futures_util::future::join_all;
use idem_core::{
    BackgroundTasks, BoxError, Delivery, DeliveryOrder, Error, Lag, ReplayWindow, Source, SubscribeOptions,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::acker::{NatsAcker, keep, release};
use crate::connection::Connection;
use crate::consumer::{Made, Place};
use crate::error;
use crate::lag::lag;
use crate::leases::First;
use crate::limits;
use crate::pull::Pull;
use crate::settings::max_unsettled;
use crate::stream::{Stream, Subscription};

/// The longest time for which an unresponsive broker can delay a shutdown.
const DRAIN: Duration = Duration::from_secs(5);

impl Stream {
    async fn subscribe(
        &mut self,
        options: &SubscribeOptions,
        consumer: String,
        connection: Connection,
    ) -> Result<(), BoxError> {
        self.info(&connection).await?;
        let since = self.made.map(|made| made.consumer);
        let place =
            Place { connection: &connection, address: &self.config.address, stream: &self.name, name: &consumer };
        let info = place.ensure(&self.wishes, options, since).await?;
        // Read behind the consumer: if the stream was recreated in the meantime, nothing of before may be settled.
        let stream = self.info(&connection).await?;

        let made = Made { stream: stream.created.into(), consumer: info.created.into() };
        self.made(made, &consumer);
        self.warn_of_little_capacity(&info, options, &consumer);
        let deletes = limits::warn(&stream.config);
        self.report_missing(&stream, &info);
        self.link.set(Some(connection.clone()));
        self.release_unsettled(false).await;
        self.keeper.shutdown().await;
        self.keeper.spawn(keep(self.link.clone(), Arc::clone(&self.leases), info.config.ack_wait));

        let own = max_unsettled(&info.config, options);
        let limit = |limit: Duration| if limit.is_zero() { Duration::MAX } else { limit };
        let mut pull = Pull {
            connection,
            link: self.link.clone(),
            leases: Arc::clone(&self.leases),
            stream: Arc::clone(&self.name),
            consumer: consumer.clone(),
            made,
            rest: if options.has_history || since.is_some() { made.rest() } else { Duration::ZERO },
            acks: Arc::clone(&self.acks),
            wait: info.config.ack_wait,
            ordering_key: (options.order == DeliveryOrder::Queue).then_some(0),
            confirmed: self.confirmed,
            max_unsettled: own.into(),
            max_batch: usize::try_from(info.config.max_batch).ok().filter(|max| *max > 0).unwrap_or(usize::MAX),
            max_expires: limit(info.config.max_expires),
            first: First::default(),
        };
        let wait = pull.wait;
        let (sender, arrivals) = unbounded_channel();
        if std::mem::take(&mut self.suspicious) {
            pull.first = self.unreadable(&pull, &sender).await;
        }
        let (first, capacity) = (pull.first.count(), (own < options.max_unsettled).then_some(usize::from(own)));
        let (stop, mut puller) = (CancellationToken::new(), BackgroundTasks::default());
        puller.spawn(pull.start(sender, stop.clone()).await?);
        self.subscription =
            Some(Subscription { arrivals, stop, puller, consumer, wait, deletes, first, capacity, live: true });
        let max_age = stream.config.max_age;
        self.replay_window = if max_age.is_zero() { ReplayWindow::Unlimited } else { ReplayWindow::Within(max_age) };
        Ok(())
    }

    /// Returns the information on the stream, or an error that names it.
    async fn info(&self, connection: &Connection) -> Result<stream::Info, Error> {
        let stream = connection.jetstream().get_stream(&*self.name).await;
        let stream = stream.map_err(|error| error::stream(&self.name, &self.config.address, &connection.api, error))?;
        Ok(stream.cached_info().clone())
    }

    /// Compares stream and consumer with those of the previous subscription.
    fn made(&mut self, made: Made, consumer: &str) {
        match self.made.replace(made) {
            Some(before) if before.stream != made.stream => {
                tracing::error!(
                    stream = %self.name,
                    "the stream was deleted and recreated: what was not handled of the old one is lost"
                );
                self.leases.void();
            }
            Some(before) if !before.consumer_is(made.consumer) => {
                tracing::error!(
                    stream = %self.name,
                    consumer,
                    "the consumer was deleted, and starts again: with the retention `interest`, what was not handled is lost"
                );
                self.leases.forget();
            }
            _ => {}
        }
    }

    /// Reports messages that were deleted before any worker received them. With a filter, they may be those of others.
    fn report_missing(&self, stream: &stream::Info, consumer: &Info) {
        let next = consumer.delivered.stream_sequence + 1;
        let config = &consumer.config;
        let is_filtered = !config.filter_subject.is_empty() || !config.filter_subjects.is_empty();
        // A bucket deletes what a later message of its subject replaces.
        let replaces = stream.config.max_messages_per_subject > 0;
        if stream.state.first_sequence > next && !is_filtered && !replaces {
            tracing::error!(
                stream = %self.name,
                from = next,
                to = stream.state.first_sequence - 1,
                "messages were deleted before this worker received them: by a limit of the stream, or by hand"
            );
        }
    }

    fn warn_of_little_capacity(&self, info: &Info, options: &SubscribeOptions, consumer: &str) {
        let (pending, own) = (info.config.max_ack_pending, max_unsettled(&info.config, options));
        if (1..i64::from(own) * 2).contains(&pending) && options.order == DeliveryOrder::None {
            tracing::warn!(
                stream = %self.name,
                consumer,
                max_ack_pending = pending,
                max_unsettled = own,
                "max_ack_pending limits all workers together, and leaves little or nothing for a second worker: set \
                 it to -1, or to max_unsettled times the number of workers (nats consumer edit), or lower \
                 max_unsettled by .prefetch(..), .concurrency(..) or .batch(..)"
            );
        }
    }

    /// Releases the deliveries that nothing holds, or with `all` every unsettled one, as far as their leases last.
    async fn release_unsettled(&self, all: bool) {
        let left = self.leases.take(all);
        for answer in join_all(left.iter().map(|lease| release(&self.link, lease))).await {
            if let Err(error) = answer {
                tracing::debug!(error, "a delivery was not released; it comes again when its lease has run out");
            }
        }
    }
}

impl Source for Stream {
    type Acker = NatsAcker;

    fn system(&self) -> &'static str {
        "nats"
    }

    fn name(&self) -> &str {
        &self.name
    }

    /// Checks the stream and the consumer each time, and creates the consumer if it does not exist.
    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        let consumer = self.check(&options)?;
        // If the connection is lost, the buffered deliveries are released over the next one.
        if self.link.now().is_some() {
            self.drain().await;
        }
        self.subscription = None;
        let connection = Connection::open(&self.config, &self.name).await?;
        self.subscribe(&options, consumer, connection).await
    }

    fn has_partition_keys(&self) -> bool {
        false
    }

    fn has_event_types(&self) -> bool {
        false
    }

    /// Returns the stream's `max_age`. It also applies to interest and work-queue retention: acked messages are removed
    /// there, but a power failure of the server can lose acks.
    fn replay_window(&self) -> ReplayWindow {
        self.replay_window
    }

    /// Returns four times the ack wait: after an outage or a pause of one ack wait, the worker releases what it holds.
    /// Otherwise it would keep extending the leases, and other workers could not receive the messages. `None` for a stream
    /// whose limits delete messages that were never handled: there a message is safe only with a worker that holds it.
    fn unsettled_limit(&self) -> Option<Duration> {
        let subscription = self.subscription.as_ref()?;
        (!subscription.deletes).then_some(subscription.wait * 4)
    }

    /// Unreadable messages are settled before anything else is pulled: each of them may be the last one that is left.
    fn capacity(&self) -> Option<usize> {
        let subscription = self.subscription.as_ref()?;
        if subscription.first.load(Relaxed) > 0 { Some(1) } else { subscription.capacity }
    }

    /// Reports the number of messages that the consumer has not delivered to any worker yet.
    fn lag(&self) -> Option<Lag> {
        let subscription = self.subscription.as_ref()?;
        Some(lag(&self.link, &self.name, &subscription.consumer))
    }

    async fn next(&mut self) -> Result<(Delivery, NatsAcker), BoxError> {
        let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else {
            return Err(self.ended("it has no subscription: call subscribe first"));
        };
        let end = loop {
            let arrival = tokio::select! {
                biased;
                never = self.keeper.panicked() => match never {},
                never = subscription.puller.panicked() => match never {},
                arrival = subscription.arrivals.recv() => arrival,
            };
            match arrival {
                // It has waited longer than its lease: the server delivers it again.
                Some(Ok((_, acker))) if !idem_core::Acker::is_live(&acker) => {}
                Some(Ok(delivery)) => return Ok(delivery),
                Some(Err(error)) => break error,
                None => break "it was ended by a defect of idem".into(),
            }
        };
        subscription.live = false;
        Err(self.ended_by(end))
    }

    /// Gives up if the broker does not respond: buffered messages are then redelivered when their leases expire.
    async fn drain(&mut self) {
        let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else { return };
        subscription.live = false;
        subscription.stop.cancel();
        let _ = timeout(DRAIN, async {
            subscription.puller.ended().await;
            subscription.arrivals.close();
            while subscription.arrivals.recv().await.is_some() {}
        })
        .await;
        let _ = timeout(DRAIN, self.release_unsettled(false)).await;
    }

    /// Releases the unsettled deliveries, so that they are redelivered before their leases expire. Gives up after 5
    /// seconds without a response.
    async fn close(&mut self) {
        // First: if this future is dropped, the leases must end.
        self.keeper.shutdown().await;
        // A pull that still waits would receive the released messages, and they would wait for their leases to expire.
        self.drain().await;
        self.subscription = None;
        let _ = timeout(DRAIN, self.release_unsettled(true)).await;
        self.leases.void();
        self.link.set(None);
    }
}
