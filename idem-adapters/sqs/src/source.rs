//! The queue as a source of deliveries.

use std::sync::Arc;
use std::time::Duration;

use idem_core::{
    Acker, BackgroundTasks, BoxError, Delivery, DeliveryOrder, Lag, ReplayWindow, Source, SubscribeOptions,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::acker::{Settling, SqsAcker, keep, release};
use crate::delivery::Origin;
use crate::envelope::Envelope;
use crate::lag::lag;
use crate::lease::LONGEST;
use crate::pull::Pull;
use crate::queue::{Queue, Subscription};
use crate::settings::{Redrive, Settings};

/// The longest time for which an unresponsive queue can delay a shutdown.
const DRAIN: Duration = Duration::from_secs(5);

/// A retention that outlasts most outages.
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Queue {
    /// Warns once of settings that are allowed and seldom meant.
    fn warn(&mut self, settings: &Settings, options: &SubscribeOptions) {
        if std::mem::replace(&mut self.warned, true) {
            return;
        }
        if settings.is_fifo && options.order == DeliveryOrder::None {
            tracing::warn!(
                queue = %self.target.name,
                "the worker keeps no order, and the queue is a FIFO queue: set .order(DeliveryOrder::Key), or use a standard \
                 queue, which has no limits for groups"
            );
        }
        if let Some(retention) = settings.retention.filter(|retention| *retention < DAY) {
            tracing::warn!(
                queue = %self.target.name,
                "SQS deletes messages after {retention:?}, handled or not, also while the database is away: raise \
                 MessageRetentionPeriod to a day or more"
            );
        }
        if let Some(Redrive { queue, receives }) = &settings.redrive {
            tracing::warn!(
                queue = %self.target.name,
                to = queue,
                receives,
                "SQS moves messages to another queue after so many receives: a message that is moved back has another id and \
                 another time, so it counts as new unless its key is in its content or its attributes"
            );
        }
    }

    /// Starts the receives, and waits for the answer to the first.
    async fn start(&mut self, pull: Pull) -> Result<(), BoxError> {
        let (sender, arrivals) = unbounded_channel();
        let (stop, mut puller, visibility) = (CancellationToken::new(), BackgroundTasks::default(), pull.visibility);
        let (first, answered) = oneshot::channel();
        puller.spawn(pull.run(sender, stop.clone(), first));
        // In its place before it is waited for: if this future is dropped, the messages are released with the subscription.
        let subscription = self.subscription.insert(Subscription { arrivals, stop, puller, visibility, live: true });
        let failed = tokio::select! {
            biased;
            never = subscription.puller.panicked() => match never {},
            // The deliveries are in the channel before the answer.
            answer = answered => answer.is_err(),
        };
        if failed {
            subscription.live = false;
            if let Some(Err(error)) = subscription.arrivals.recv().await {
                return Err(error);
            }
            return Err(self.ended("it was ended by a defect of idem"));
        }
        Ok(())
    }

    /// Releases the deliveries that nothing holds, or with `all` every unsettled one, as far as their leases last.
    async fn release_unsettled(&self, all: bool) {
        release(&self.target, &self.leases.take(all)).await;
    }
}

impl Source for Queue {
    type Acker = SqsAcker;

    fn system(&self) -> &'static str {
        "aws_sqs"
    }

    fn name(&self) -> &str {
        &self.target.name
    }

    /// Checks the attributes of the queue and the permissions each time.
    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.drain().await;
        self.subscription = None;
        let settings = Settings::read(&self.target).await?;
        let visibility = settings.check(&self.wishes, options.order, &self.target.place())?;
        self.target.check_permissions().await?;
        self.warn(&settings, &options);
        self.replay_window = settings.replay_window();
        self.release_unsettled(false).await;
        self.keeper.shutdown().await;
        self.keeper.spawn(keep(Arc::clone(&self.target), Arc::clone(&self.leases), visibility));
        let settling = self.settling.get_or_insert_with(|| Settling::start(&self.target, &mut self.senders));
        let most = usize::from(options.max_unsettled);
        let pull = Pull {
            target: Arc::clone(&self.target),
            leases: Arc::clone(&self.leases),
            settling: Arc::clone(settling),
            chains: Arc::clone(&self.chains),
            origin: Origin {
                queue: Arc::clone(&self.target.name),
                is_fifo: settings.is_fifo,
                envelope: self.envelope,
                is_ordered: options.order == DeliveryOrder::Key,
            },
            visibility,
            wait: Duration::from_secs((visibility / 3).min(self.wait).as_secs()),
            most,
            least: usize::from(options.least_unsettled).min(most),
            unanswered: Arc::clone(&self.unanswered),
        };
        self.start(pull).await
    }

    /// Returns whether the name ends in `.fifo`, as that of each FIFO queue does.
    fn has_partition_keys(&self) -> bool {
        self.target.name.ends_with(".fifo")
    }

    fn has_event_types(&self) -> bool {
        self.envelope == Envelope::EventBridge
    }

    fn has_subjects(&self) -> bool {
        false
    }

    /// Returns the retention of the queue.
    fn replay_window(&self) -> ReplayWindow {
        self.replay_window
    }

    /// Returns four times the visibility timeout, and at most the 12 hours of SQS: after an outage or a pause of one visibility
    /// timeout, the worker releases what it holds. Otherwise it would keep extending the leases, and other workers could not
    /// receive the messages.
    fn unsettled_limit(&self) -> Option<Duration> {
        Some((self.subscription.as_ref()?.visibility * 4).min(LONGEST))
    }

    /// Reports the approximate number of messages that no worker has received.
    fn lag(&self) -> Option<Lag> {
        self.subscription.as_ref().map(|_| lag(&self.target, self.wishes.redrive_to.clone()))
    }

    async fn next(&mut self) -> Result<(Delivery, SqsAcker), BoxError> {
        let Some(subscription) = self.subscription.as_mut().filter(|subscription| subscription.live) else {
            return Err(self.ended("it has no subscription: call subscribe first"));
        };
        let end = loop {
            let arrival = tokio::select! {
                biased;
                never = self.keeper.panicked() => match never {},
                never = self.senders.panicked() => match never {},
                never = subscription.puller.panicked() => match never {},
                arrival = subscription.arrivals.recv() => arrival,
            };
            match arrival {
                // It has waited for longer than its lease, or one before it in its group has: SQS delivers it again.
                Some(Ok((_, acker))) if !acker.is_live() => {}
                Some(Ok(delivery)) => return Ok(delivery),
                Some(Err(error)) => break error,
                None => break "it was ended by a defect of idem".into(),
            }
        };
        subscription.live = false;
        Err(self.ended(end))
    }

    /// Gives up if the receive under way does not end within 5 seconds: [`close`](Source::close) waits for it again.
    async fn drain(&mut self) {
        let Some(subscription) = self.subscription.as_mut() else { return };
        subscription.live = false;
        subscription.stop.cancel();
        let ended = timeout(DRAIN, subscription.puller.ended()).await;
        // Ackers that are dropped are released below.
        while subscription.arrivals.try_recv().is_ok() {}
        if ended.is_err() {
            tracing::debug!(queue = %self.target.name, "a receive has not ended in time");
        }
        let _ = timeout(DRAIN, self.release_unsettled(false)).await;
    }

    /// Releases the unsettled deliveries, so that they are redelivered before their visibility timeout ends. Gives up after 5
    /// seconds without an answer.
    async fn close(&mut self) {
        // First: if this future is dropped, the leases must end.
        self.keeper.shutdown().await;
        // A receive that still waits would bring the released messages again, and they would be hidden.
        self.drain().await;
        self.subscription = None;
        let _ = timeout(DRAIN, self.release_unsettled(true)).await;
        self.leases.void();
        // What comes later has nothing to wait for.
        self.chains = Arc::default();
    }
}
