//! Pulls messages: requests as many as the source has room for, and hands them on.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::{Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use idem_core::{BoxError, Delivery};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::acker::NatsAcker;
use crate::connection::{Connection, Lost};
use crate::consumer::Made;
use crate::delivery::{Facts, common, delivery};
use crate::gather::Gather;
use crate::lease::Lease;
use crate::leases::{First, Leases};
use crate::link::Link;
use crate::settings::nanos;

/// A delivery or, as the last item, the reason why no more arrive.
pub(crate) type Arrival = Result<(Delivery, NatsAcker), BoxError>;

/// How long the server keeps a pull that it cannot fill.
const EXPIRES: Duration = Duration::from_secs(30);

/// The interval of the server's heartbeats while a pull waits.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// The silence after which a pull counts as lost: two missed heartbeats, and a margin for a busy machine. The consumer is
/// compared as often.
const SILENCE: Duration = Duration::from_secs(5);

/// How long the source pauses after the server rejected a pull.
const PAUSE: Duration = Duration::from_secs(1);

/// The longest time for which an unresponsive broker can delay a shutdown.
const REST: Duration = Duration::from_secs(2);

/// The state that all pulls of a subscription share.
pub(crate) struct Pull {
    pub(crate) connection: Connection,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    pub(crate) stream: Arc<str>,
    pub(crate) consumer: String,
    pub(crate) made: Made,
    /// How long to wait before the first pull.
    pub(crate) rest: Duration,
    /// The part that the subjects of all acks have in common, once it is known.
    pub(crate) acks: Arc<OnceLock<String>>,
    pub(crate) wait: Duration,
    pub(crate) ordering_key: Option<u64>,
    pub(crate) confirmed: bool,
    pub(crate) max_unsettled: usize,
    /// The consumer's limits for one pull.
    pub(crate) max_batch: usize,
    pub(crate) max_expires: Duration,
    pub(crate) first: First,
}

/// A subscription with at most one pull at a time, so that it is always known what is still to come.
struct Puller {
    pull: Pull,
    inbox: String,
    subscriber: Subscriber,
    /// The number of pulls so far, which is the last token of the current pull's subject.
    number: u64,
    /// How many messages the current pull may still bring.
    asked: usize,
    heard: Instant,
    /// When the last request was sent whose answer showed the consumer.
    compared: Instant,
    /// No pull is sent before this time.
    paused: Instant,
    gather: Gather,
    /// When the subscription began, until the first message or status arrives.
    began: Option<Instant>,
    /// How many pulls in a row had no responder.
    unanswered: u32,
}

impl Pull {
    /// Subscribes. The returned future hands on deliveries until `stop` is cancelled or an error occurs.
    pub(crate) async fn start(
        self,
        arrivals: UnboundedSender<Arrival>,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send, BoxError> {
        let inbox = self.connection.client.new_inbox();
        let subscriber = self.connection.client.subscribe(format!("{inbox}.*")).await?;
        let now = Instant::now();
        let mut puller = Puller {
            inbox,
            subscriber,
            number: 0,
            asked: 0,
            heard: now,
            compared: now,
            paused: now + self.rest,
            gather: Gather::default(),
            pull: self,
            began: Some(now),
            unanswered: 0,
        };
        Ok(async move {
            if let Err(error) = puller.run(&arrivals, &stop).await {
                // The stream may have been recreated: nothing is settled until the next subscription has checked it.
                puller.pull.link.set(None);
                let _ = arrivals.send(Err(error));
            }
        })
    }

    pub(crate) fn acker(&self, lease: Arc<Lease>) -> NatsAcker {
        let (leases, link) = (Arc::clone(&self.leases), self.link.clone());
        NatsAcker { lease, leases, link, confirmed: self.confirmed }
    }
}

impl Puller {
    async fn run(&mut self, arrivals: &UnboundedSender<Arrival>, stop: &CancellationToken) -> Result<(), BoxError> {
        let (lost, leases) = (self.pull.connection.lost.clone(), Arc::clone(&self.pull.leases));
        let mut sleep = pin!(sleep_until(self.heard + SILENCE));
        loop {
            // Behind the stop, a status would end the link, over which the running deliveries are still settled.
            if !stop.is_cancelled() && !self.take_ready(arrivals)? {
                return Err(Lost.into());
            }
            if !stop.is_cancelled() && self.compared.elapsed() >= SILENCE {
                self.compare().await?;
            }
            self.ask().await?;
            let silent = self.heard + SILENCE;
            let wake = if self.asked > 0 { silent } else { Instant::now() + PAUSE };
            let wake = wake.min(self.compared + SILENCE);
            let wake = self.gather.due().map_or(wake, |due| wake.min(due));
            // It may end too early, but never too late: to move it for each message costs more than to look once more.
            if wake < sleep.deadline() || sleep.is_elapsed() {
                sleep.as_mut().reset(wake);
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.rest(arrivals).await,
                message = self.subscriber.next() => self.take(message.ok_or(Lost)?, arrivals)?,
                () = lost.cancelled() => {
                    // The messages that arrived before the loss are still valid.
                    self.take_ready(arrivals)?;
                    return Err(self.lost());
                }
                () = leases.freed.notified() => {}
                () = sleep.as_mut() => {
                    if self.asked > 0 && silent <= Instant::now() {
                        let what = "the server sends no heartbeats: the consumer was deleted, or the connection is dead";
                        return Err(what.into());
                    }
                }
            }
        }
    }

    /// Takes the messages that are there, which a pull has bounded. Returns `false` if the subscriber has ended.
    fn take_ready(&mut self, arrivals: &UnboundedSender<Arrival>) -> Result<bool, BoxError> {
        loop {
            match self.subscriber.next().now_or_never() {
                Some(Some(message)) => self.take(message, arrivals)?,
                Some(None) => return Ok(false),
                None => return Ok(true),
            }
        }
    }

    /// Asks the server whether the consumer is still the same. Nothing reports its end while no pull waits, and the next
    /// pull may reach another consumer of its name.
    async fn compare(&mut self) -> Result<(), BoxError> {
        let asked = Instant::now();
        let Pull { connection, stream, consumer, made, .. } = &self.pull;
        let info = tokio::select! {
            biased;
            info = timeout(SILENCE, connection.consumer(stream, consumer)) => info??,
            () = connection.lost.cancelled() => return Err(self.lost()),
        };
        if !made.consumer_is(info.created.into()) {
            return Err("the consumer was deleted and recreated".into());
        }
        self.compared = asked;
        Ok(())
    }

    /// Pulls as many messages as the source has room for, unless a pull already waits or more room is gathered.
    async fn ask(&mut self) -> Result<(), BoxError> {
        let all = self.pull.max_unsettled.min(self.pull.max_batch);
        let capacity = self.pull.max_unsettled.saturating_sub(self.pull.leases.count()).min(all);
        let (settled, now) = (self.pull.first.are_settled(&self.pull.leases), Instant::now());
        if self.asked > 0 || capacity == 0 || self.paused > now || !settled {
            self.gather.restart();
            return Ok(());
        }
        if !self.gather.is_worth(capacity, all, now) {
            return Ok(());
        }
        self.gather.restart();
        self.number += 1;
        let expires = EXPIRES.min(self.pull.max_expires);
        let request = json!({
            "batch": capacity,
            "expires": nanos(expires),
            // The server rejects more than half of the expiry.
            "idle_heartbeat": nanos(HEARTBEAT.min(expires / 2)),
        });
        let Pull { connection, stream, consumer, .. } = &self.pull;
        let subject = format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", connection.api);
        let reply = format!("{}.{}", self.inbox, self.number);
        self.pull.connection.client.publish_with_reply(subject, reply, request.to_string().into()).await?;
        (self.asked, self.heard) = (capacity, Instant::now());
        Ok(())
    }

    fn take(&mut self, message: Message, arrivals: &UnboundedSender<Arrival>) -> Result<(), BoxError> {
        (self.heard, self.began) = (Instant::now(), None);
        // Does not use the status, because a producer could set it in its headers.
        let Some((reply, facts)) = message.reply.as_deref().and_then(|reply| Some((reply, Facts::parse(reply)?)))
        else {
            return self.status(&message);
        };
        (self.asked, self.unanswered) = (self.asked.saturating_sub(1), 0);
        self.pull.acks.get_or_init(|| common(reply).unwrap_or_default().to_owned());
        let lease = self.pull.leases.add(reply.to_owned(), facts.sequence, self.pull.wait);
        let acker = self.pull.acker(lease);
        let delivery = delivery(&self.pull.stream, message, &facts, self.pull.ordering_key);
        // If the receiver is gone, the acker is dropped and its delivery is released.
        let _ = arrivals.send(Ok((delivery, acker)));
        Ok(())
    }

    /// Ends the subscription, and takes the messages that are on their way.
    async fn rest(&mut self, arrivals: &UnboundedSender<Arrival>) -> Result<(), BoxError> {
        self.subscriber.drain().await?;
        let _ = timeout(REST, async {
            while let Some(message) = self.subscriber.next().await {
                if self.take(message, arrivals).is_err() {
                    break;
                }
            }
            // A request for the consumer's info makes the server drop pulls that no client waits for. Otherwise a
            // server of version 2.9 would count the messages that are released next as delivered to this pull, and then
            // deliver them as if for the first time.
            let Pull { connection, stream, consumer, .. } = &self.pull;
            let info = format!("{}.CONSUMER.INFO.{stream}.{consumer}", connection.api);
            let _ = connection.client.request(info, Bytes::new()).await;
        })
        .await;
        Ok(())
    }

    /// Handles the server's status of a pull.
    fn status(&mut self, message: &Message) -> Result<(), BoxError> {
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
    fn lost(&self) -> BoxError {
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
