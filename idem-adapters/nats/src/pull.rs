//! Pulling: asks the consumer for as many messages as there is room for, and hands them on.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_nats::{Client, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use idem_core::{BoxError, Delivery};
use serde_json::json;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::acker::NatsAcker;
use crate::connection::{Connection, Link, Lost};
use crate::delivery::{Facts, delivery};
use crate::lease::{Lease, Leases};
use crate::settings::nanos;

/// A delivery or, as the last one, the reason why no more arrive.
pub(crate) type Arrival = Result<(Delivery, NatsAcker), BoxError>;

/// How long the server keeps a pull that it cannot fill.
const EXPIRES: Duration = Duration::from_secs(30);

/// While a pull waits the server says so this often.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// After two heartbeats that did not come, and some time for a busy machine, the pull counts as lost.
const SILENCE: Duration = Duration::from_secs(5);

/// How long nothing is asked for after the server has refused.
const PAUSE: Duration = Duration::from_secs(1);

/// The limit to what a broker that does not answer can delay a shutdown by.
const REST: Duration = Duration::from_secs(2);

/// The parts that all pulls of a subscription share.
pub(crate) struct Pull {
    pub(crate) connection: Connection,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    pub(crate) stream: Arc<str>,
    pub(crate) consumer: String,
    /// When the consumer was made.
    pub(crate) made: SystemTime,
    pub(crate) wait: Duration,
    pub(crate) ordering_key: Option<u64>,
    pub(crate) confirmed: bool,
    pub(crate) max_unsettled: usize,
    /// The consumer's limits to a pull.
    pub(crate) max_batch: usize,
    pub(crate) max_expires: Duration,
    /// The leases of what is to be settled before anything is asked for: it would end the connection.
    pub(crate) first: Vec<Arc<Lease>>,
}

/// A subscription and its one pull at a time. With one there is no doubt about what is still to come.
struct Puller {
    pull: Pull,
    inbox: String,
    subscriber: Subscriber,
    /// How many pulls there were: the last token of the subject of the one that waits.
    number: u64,
    /// How many messages the pull that waits may still bring.
    asked: usize,
    heard: Instant,
    /// Nothing is asked for before.
    paused: Instant,
    /// Since when there was neither a message nor any other answer.
    began: Option<Instant>,
    /// How often the server had nobody to answer, in a row.
    unanswered: u32,
}

impl Pull {
    /// Subscribes. The returned future hands on deliveries until `stop`, or until an error ends it.
    pub(crate) async fn start(
        self,
        arrivals: UnboundedSender<Arrival>,
        stop: CancellationToken,
    ) -> Result<impl Future<Output = ()> + Send, BoxError> {
        let inbox = self.connection.client.new_inbox();
        let subscriber = self.connection.client.subscribe(format!("{inbox}.*")).await?;
        let now = Instant::now();
        let mut puller = Puller {
            pull: self,
            inbox,
            subscriber,
            number: 0,
            asked: 0,
            heard: now,
            paused: now,
            began: Some(now),
            unanswered: 0,
        };
        Ok(async move {
            if let Err(error) = puller.run(&arrivals, &stop).await {
                // The stream may be another one by now: nothing is settled before the next subscription has looked.
                puller.pull.link.set(None);
                let _ = arrivals.send(Err(error));
            }
        })
    }

    pub(crate) fn acker(&self, lease: Arc<Lease>) -> NatsAcker {
        let (leases, link) = (Arc::clone(&self.leases), self.link.clone());
        NatsAcker { lease, leases, link, confirmed: self.confirmed }
    }

    fn client(&self) -> &Client {
        &self.connection.client
    }
}

impl Puller {
    async fn run(&mut self, arrivals: &UnboundedSender<Arrival>, stop: &CancellationToken) -> Result<(), BoxError> {
        let (lost, leases) = (self.pull.connection.lost.clone(), Arc::clone(&self.pull.leases));
        loop {
            self.ask().await?;
            let silent = self.heard + SILENCE;
            let look = if self.asked > 0 { silent } else { silent.min(Instant::now() + PAUSE) };
            tokio::select! {
                biased;
                () = stop.cancelled() => return self.rest(arrivals).await,
                message = self.subscriber.next() => self.take(message.ok_or(Lost)?, arrivals)?,
                () = lost.cancelled() => {
                    // The messages that arrived before are ours all the same.
                    while let Some(Some(message)) = self.subscriber.next().now_or_never() {
                        self.take(message, arrivals)?;
                    }
                    return Err(self.lost());
                }
                () = leases.freed.notified() => {}
                () = sleep_until(look) => {
                    if silent <= Instant::now() {
                        self.check().await?;
                    }
                }
            }
        }
    }

    /// Nothing was heard for a while. Without a pull that waits there are no heartbeats, and nothing tells the end of the
    /// consumer or of the connection; so the server is asked.
    async fn check(&mut self) -> Result<(), BoxError> {
        if self.asked > 0 {
            return Err("the server sends no heartbeats: the consumer was deleted, or the connection is dead".into());
        }
        let jetstream = self.pull.connection.jetstream();
        let stream = jetstream.get_stream_no_info(&*self.pull.stream).await?;
        let info = timeout(SILENCE, stream.consumer_info(&self.pull.consumer)).await??;
        if SystemTime::from(info.created) != self.pull.made {
            return Err("the consumer was deleted and recreated".into());
        }
        self.heard = Instant::now();
        Ok(())
    }

    /// Asks for as many as there is room for, unless it was asked for already.
    async fn ask(&mut self) -> Result<(), BoxError> {
        let room = self.pull.max_unsettled.saturating_sub(self.pull.leases.count()).min(self.pull.max_batch);
        let leases = &self.pull.leases;
        self.pull.first.retain(|lease| leases.has(lease));
        if self.asked > 0 || room == 0 || self.paused > Instant::now() || !self.pull.first.is_empty() {
            return Ok(());
        }
        self.number += 1;
        let expires = EXPIRES.min(self.pull.max_expires);
        let request = json!({
            "batch": room,
            "expires": nanos(expires),
            // The server refuses more than half of the expiry.
            "idle_heartbeat": nanos(HEARTBEAT.min(expires / 2)),
        });
        let Pull { connection, stream, consumer, .. } = &self.pull;
        let subject = format!("{}.CONSUMER.MSG.NEXT.{stream}.{consumer}", connection.api);
        let reply = format!("{}.{}", self.inbox, self.number);
        self.pull.client().publish_with_reply(subject, reply, request.to_string().into()).await?;
        (self.asked, self.heard) = (room, Instant::now());
        Ok(())
    }

    fn take(&mut self, message: Message, arrivals: &UnboundedSender<Arrival>) -> Result<(), BoxError> {
        (self.heard, self.began) = (Instant::now(), None);
        // Not by the status, which a producer could write into its headers.
        let Some((reply, facts)) = message.reply.as_deref().and_then(|reply| Some((reply, Facts::parse(reply)?)))
        else {
            return self.status(&message);
        };
        (self.asked, self.unanswered) = (self.asked.saturating_sub(1), 0);
        let lease = Arc::new(Lease::new(reply.to_owned(), facts.sequence, self.pull.wait));
        self.pull.leases.add(&lease);
        let acker = self.pull.acker(lease);
        let delivery = delivery(&self.pull.stream, message, &facts, self.pull.ordering_key);
        // Where nobody receives any more the acker is dropped, and what it holds is given back.
        let _ = arrivals.send(Ok((delivery, acker)));
        Ok(())
    }

    /// The server's status for a pull.
    fn status(&mut self, message: &Message) -> Result<(), BoxError> {
        let ours = message.subject.rsplit('.').next().is_some_and(|token| token == self.number.to_string());
        let text = message.description.as_deref().unwrap_or_default();
        match message.status {
            Some(StatusCode::IDLE_HEARTBEAT) => Ok(()),
            _ if !ours => Ok(()),
            // It has expired, and there was nothing.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                (self.asked, self.unanswered) = (0, 0);
                Ok(())
            }
            // For a moment this can be so in a cluster that elects a leader.
            Some(StatusCode::NO_RESPONDERS) if self.unanswered == 0 => {
                self.unanswered += 1;
                self.pause();
                Ok(())
            }
            Some(StatusCode::NO_RESPONDERS) => {
                Err("the server knows no such consumer: it was deleted, or JetStream is not ready".into())
            }
            // Other workers have taken all that the consumer allows.
            Some(_) if text.contains("MaxAckPending") || text.contains("MaxWaiting") => {
                tracing::debug!(consumer = self.pull.consumer, text, "the consumer allows no pull now");
                self.pause();
                Ok(())
            }
            Some(status) => Err(format!("the server ended the pull: {status} {text}").into()),
            None => {
                Err("a message came that is none of JetStream's: an account may import it under other subjects".into())
            }
        }
    }

    /// async-nats ends the connection at headers that it cannot read, without a word, and again at the next try.
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

    /// Ends the subscription, and takes what was under way.
    async fn rest(&mut self, arrivals: &UnboundedSender<Arrival>) -> Result<(), BoxError> {
        self.subscriber.drain().await?;
        let _ = timeout(REST, async {
            while let Some(message) = self.subscriber.next().await {
                if self.take(message, arrivals).is_err() {
                    break;
                }
            }
            // Looking at a consumer has the server forget pulls that nobody waits for. A server of 2.9 would count what is
            // released next as delivered to this one, and then deliver it as if for the first time.
            let Pull { connection, stream, consumer, .. } = &self.pull;
            let info = format!("{}.CONSUMER.INFO.{stream}.{consumer}", connection.api);
            let _ = self.pull.client().request(info, Bytes::new()).await;
        })
        .await;
        Ok(())
    }
}
