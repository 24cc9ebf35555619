//! One queue of a source, and its subscription.

use std::sync::Arc;
use std::task::{Context, Poll};

use idem_core::{BoxError, Error};
use lapin::types::FieldTable;

use crate::address::Address;
use crate::bare::Bare;
use crate::config::Config;
use crate::connection::Link;
use crate::error::broker;
use crate::limit::Limits;
use crate::queue_type::{self, Examined, Found};
use crate::request::{Expected, Request};
use crate::single::{Single, Taken};
use crate::unprocessed;
use crate::wide::{End, Wide};

/// One queue of a source.
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    pub(crate) request: Request,
    /// The arguments of the queue that had to be learned.
    arguments: FieldTable,
    /// Whether the queue did not exist when this process started.
    is_new: bool,
    subscription: Option<By>,
    /// How many more messages to take one at a time, on a connection that parses what lapin cannot. When lapin closes
    /// its connection at a message, everything prefetched is returned, and each return counts against a delivery limit. The error
    /// does not say from which queue the message came, so this is set for each queue of the connection.
    narrow: u16,
}

/// The kind of a subscription.
#[allow(clippy::large_enum_variant, reason = "there is one for each queue")]
pub(crate) enum By {
    /// A channel of the connection shared by all queues.
    Lapin(Wide),
    Bare(Single),
}

impl Member {
    pub(crate) fn new(name: String, request: Request, found: Found) -> Self {
        let Found { arguments, is_new } = found;
        Self { name: name.into(), request, arguments, is_new, subscription: None, narrow: 0 }
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
    pub(crate) async fn look(&mut self, config: &Config, bare: &mut Bare, limits: Limits) -> Result<(), Error> {
        let known = self.arguments.clone();
        let queue =
            Examined { address: &config.address, name: &self.name, request: &self.request, limits, is_known: true };
        self.arguments = queue_type::verify(bare, queue, known).await?.arguments;
        Ok(())
    }

    /// Reports whether the server deletes the queue when it has had no consumer for some time.
    pub(crate) fn deletes_returned(&self) -> bool {
        unprocessed::deletes_returned(&self.arguments)
    }

    /// Refuses a queue that cannot keep its order: with several consumers at a time, one could receive the second
    /// message while another has the first.
    pub(crate) fn check_order(&self, address: &Address) -> Result<(), Error> {
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

    /// Subscribes on `link`, or on a connection that reads raw bytes if messages are to be taken one at a time.
    pub(crate) async fn subscribe(
        &mut self,
        config: &Config,
        link: &mut Link,
        max_unsettled: u16,
    ) -> Result<(), Error> {
        self.subscription = Some(if self.is_narrow() {
            By::Bare(Single::open(config, &self.name, max_unsettled, self.request.consumer.clone()).await?)
        } else {
            By::Lapin(self.wide(config, link, max_unsettled).await?)
        });
        Ok(())
    }

    async fn wide(&self, config: &Config, link: &mut Link, max_unsettled: u16) -> Result<Wide, Error> {
        let subscribed = Wide::open(link, &self.name, max_unsettled, self.request.consumer.clone()).await;
        subscribed.map_err(|error| broker(format!("cannot subscribe to {}", self.place(&config.address)), error))
    }

    /// Replaces a one-at-a-time subscription that has nothing unsettled with a lapin subscription. Cancel safe: if it
    /// is dropped, the old one remains and is replaced the next time.
    pub(crate) async fn widen(&mut self, config: &Config, link: &mut Link, max_unsettled: u16) -> Result<(), Error> {
        let wide = self.wide(config, link, max_unsettled).await?;
        tracing::info!(queue = %self.name, "the prefetched messages have passed; messages are prefetched again");
        if let Some(old) = self.subscription.replace(By::Lapin(wide)) {
            old.close().await;
        }
        Ok(())
    }

    pub(crate) fn is_narrow(&self) -> bool {
        self.narrow > 0
    }

    /// Takes one message at a time from the next subscription on, until `max_unsettled` messages have passed.
    pub(crate) fn take_singly(&mut self, max_unsettled: u16) {
        self.narrow = max_unsettled;
    }

    /// Reports whether it uses the shared connection, which lapin closes at a message that it cannot parse.
    pub(crate) fn is_by_lapin(&self) -> bool {
        matches!(self.subscription, Some(By::Lapin(_)))
    }

    /// Reports whether one message at a time is taken.
    pub(crate) fn takes_singly(&self) -> bool {
        matches!(self.subscription, Some(By::Bare(_)))
    }

    /// Returns the next delivery, if there is one.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Taken, End>> {
        match &mut self.subscription {
            Some(By::Lapin(wide)) => wide.poll_next(context, &self.name).map_ok(Some),
            Some(By::Bare(single)) => single.poll_next(context, &self.name, &mut self.narrow).map_err(End::Other),
            None => Poll::Pending,
        }
    }

    /// Ends the subscription, and releases messages that were not returned.
    pub(crate) async fn drain(&mut self) -> Result<(), BoxError> {
        match &mut self.subscription {
            Some(By::Lapin(wide)) => wide.drain().await.map_err(BoxError::from),
            Some(By::Bare(single)) => single.drain().await,
            None => Ok(()),
        }
    }

    /// Takes the subscription, so that it can be closed.
    pub(crate) fn leave(&mut self) -> Option<By> {
        self.subscription.take()
    }
}

impl By {
    /// Closes the subscription and returns everything unsettled to the queue.
    pub(crate) async fn close(self) {
        match self {
            Self::Lapin(wide) => wide.close().await,
            Self::Bare(single) => single.close().await,
        }
    }
}
