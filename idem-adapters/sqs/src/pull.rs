//! Receives messages: asks for as many as the source has room for, and hands them on.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use idem_core::{BoxError, Delivery};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::acker::{Settling, SqsAcker};
use crate::chain::Chains;
use crate::delivery::{Origin, delivery, group};
use crate::error::{Cause, Failure};
use crate::gather::Gather;
use crate::leases::Leases;
use crate::name::remedy;
use crate::requests::{ANSWER, ENTRIES, Target};

/// A delivery or, as the last item, the reason why no more arrive.
pub(crate) type Arrival = Result<(Delivery, SqsAcker), BoxError>;

/// A receive of a FIFO queue that had no answer. Repeated under its id, it brings the same messages again, which are otherwise
/// hidden, with the rest of their groups, until their visibility timeout ends.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    id: String,
    began: Instant,
}

/// The state of one subscription's receives, of which there is one at a time. None is ever dropped, because the messages that
/// it brings would be hidden, except when the source is closed and SQS does not answer.
pub(crate) struct Pull {
    pub(crate) target: Arc<Target>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) settling: Arc<Settling>,
    pub(crate) chains: Arc<Chains>,
    pub(crate) origin: Origin,
    pub(crate) visibility: Duration,
    /// How long SQS waits for a first message.
    pub(crate) wait: Duration,
    pub(crate) most: usize,
    pub(crate) least: usize,
    /// Shared by all subscriptions of a source.
    pub(crate) unanswered: Arc<Mutex<Option<Attempt>>>,
}

impl Pull {
    /// Hands on deliveries until `stop` is cancelled or an error occurs. Tells `first` when the first receive was answered.
    pub(crate) async fn run(
        self,
        arrivals: UnboundedSender<Arrival>,
        stop: CancellationToken,
        first: oneshot::Sender<()>,
    ) {
        let (mut first, mut gather) = (Some(first), Gather::default());
        while let Some(room) = self.room(&mut gather, &stop).await {
            // The first one shows whether receiving is allowed, and does not wait.
            let wait = if first.is_some() { Duration::ZERO } else { self.wait };
            match self.receive(room, wait, &arrivals).await {
                Ok(()) => drop(first.take().map(|first| first.send(()))),
                Err(failure) => {
                    let error = failure.error("sqs:ReceiveMessage", &self.target.place(), &remedy(&self.target.name));
                    let _ = arrivals.send(Err(error.into()));
                    return;
                }
            }
        }
    }

    /// Waits until a receive is worth its price, and returns for how many messages there is room. `None`: stopped.
    async fn room(&self, gather: &mut Gather, stop: &CancellationToken) -> Option<usize> {
        loop {
            if stop.is_cancelled() {
                return None;
            }
            let (unsettled, now) = (self.leases.count(), Instant::now());
            let due = gather.due(unsettled, self.least, self.most, now);
            if due.is_some_and(|due| due <= now) {
                gather.restart();
                return Some((self.most - unsettled).min(ENTRIES));
            }
            tokio::select! {
                () = stop.cancelled() => return None,
                () = self.leases.freed.notified() => {}
                () = sleep_until(due.unwrap_or(now)), if due.is_some() => {}
            }
        }
    }

    /// Receives up to so many messages.
    async fn receive(&self, room: usize, wait: Duration, arrivals: &UnboundedSender<Arrival>) -> Result<(), Failure> {
        let began = Instant::now();
        let attempt = self.origin.is_fifo.then(|| self.attempt(began));
        let request = self
            .target
            .config
            .receiving
            .receive_message()
            .queue_url(&self.target.url)
            .max_number_of_messages(seconds(room as u64))
            .wait_time_seconds(seconds(wait.as_secs()))
            .visibility_timeout(seconds(self.visibility.as_secs()))
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(attempt.as_ref().map(|attempt| attempt.id.clone()));
        let answer = match timeout(wait + ANSWER, request.send()).await {
            Ok(answer) => answer.map_err(|error| Failure::new(&error)),
            Err(_) => Err(Failure::silence()),
        };
        let received = attempt.as_ref().map_or(began, |attempt| attempt.began);
        let is_unanswered = answer.as_ref().is_err_and(|failure| failure.cause == Cause::Unavailable);
        *self.unanswered.lock().unwrap_or_else(PoisonError::into_inner) = attempt.filter(|_| is_unanswered);
        for message in answer?.messages.unwrap_or_default() {
            self.take(message, received, arrivals);
        }
        Ok(())
    }

    /// Returns the receive that had no answer, or a new one. Near the end of the visibility timeout, its messages are there again
    /// anyway, and their leases would have ended.
    fn attempt(&self, now: Instant) -> Attempt {
        let unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let can_be_repeated = |attempt: &Attempt| attempt.began.elapsed() < self.visibility * 3 / 4;
        unanswered.filter(can_be_repeated).unwrap_or_else(|| Attempt { id: Uuid::new_v4().to_string(), began: now })
    }

    fn take(&self, message: Message, received: Instant, arrivals: &UnboundedSender<Arrival>) {
        let Some(handle) = message.receipt_handle.clone() else { return };
        let place =
            group(&self.origin, &message).filter(|_| self.origin.is_ordered).map(|group| self.chains.join(group));
        let lease = self.leases.add(handle, self.visibility, received, place);
        let acker = SqsAcker { lease, leases: Arc::clone(&self.leases), settling: Arc::clone(&self.settling) };
        // If the receiver is gone, the acker is dropped and its delivery is released.
        let _ = arrivals.send(Ok((delivery(&self.origin, message), acker)));
    }
}

/// SQS takes numbers of 32 bits.
fn seconds(number: u64) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}
