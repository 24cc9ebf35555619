//! The parameter with which a handler stages messages.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::{BoxError, KeyPart};

use super::Outgoing;

/// Stages messages that are published after the handler's transaction is committed.
///
/// What a handler stages is written if it returns `Ok`, in its transaction, and dropped if it fails. Nothing is written
/// while the handler runs, so a savepoint that the handler rolls back takes nothing with it. The messages belong to the
/// outbox with the name of the worker's consumer, and a relay of that name publishes them.
///
/// The id of each message is derived from the consumer, the handler, the key of the incoming message, and the place
/// among the messages that this handler stages. Whatever runs twice publishes under the same ids, if the handler stages
/// the same messages in the same order. A batch handler has no incoming key, and its messages get random ids.
///
/// Clones stage into the same place. A message that is staged after the handler has returned is an error.
///
/// ```
/// # use idem_core::{BoxError, Outbox};
/// # struct OrderPaid { order_id: i64 } struct PgConnection;
/// # #[derive(serde::Serialize)] struct InvoiceRequested { order_id: i64 }
/// async fn order_paid(event: OrderPaid, tx: &mut PgConnection, outbox: Outbox) -> Result<(), BoxError> {
///     # let _ = tx;
///     outbox.publish("invoice.requested", &InvoiceRequested { order_id: event.order_id })?.key(event.order_id);
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// // A test calls it with an outbox of its own.
/// let outbox = Outbox::default();
/// order_paid(OrderPaid { order_id: 7 }, &mut PgConnection, outbox.clone()).await?;
/// assert_eq!(outbox.staged()[0].to(), "invoice.requested");
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Outbox(Arc<Mutex<Contents>>);

#[derive(Default)]
struct Contents {
    messages: Vec<Outgoing>,
    /// Whether the handler has returned.
    ended: bool,
}

impl Outbox {
    /// Stages a message whose payload is `event` as JSON. `to` is the routing key on RabbitMQ, the subject on NATS, and
    /// the topic on Kafka. The message can be changed by the methods of what this returns.
    ///
    /// # Errors
    /// The event has no JSON form, `to` cannot be sent, or the handler has returned.
    pub fn publish<E: Serialize + ?Sized>(&self, to: impl Into<String>, event: &E) -> Result<Staging<'_>, BoxError> {
        self.send(Outgoing::json(to, event)?)
    }

    /// Stages a message.
    ///
    /// # Errors
    /// It has a value that cannot be sent, or the handler has returned.
    pub fn send(&self, message: Outgoing) -> Result<Staging<'_>, BoxError> {
        message.check()?;
        let mut contents = self.contents();
        if contents.ended {
            return Err("the handler has returned, so nothing more can be staged: await what stages messages".into());
        }
        contents.messages.push(message);
        Ok(Staging { outbox: self, at: contents.messages.len() - 1 })
    }

    /// Returns copies of the messages that are staged, local ones included, in their order, for a test.
    pub fn staged(&self) -> Vec<Outgoing> {
        self.contents().messages.clone()
    }

    /// Takes the messages that were staged into another outbox, behind those that are staged here.
    pub(crate) fn append(&self, other: &Self) {
        let staged = other.take();
        self.contents().messages.extend(staged);
    }

    /// Takes the messages of a handler that has returned.
    pub(crate) fn take(&self) -> Vec<Outgoing> {
        let mut contents = self.contents();
        contents.ended = true;
        std::mem::take(&mut contents.messages)
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A message that was just staged, to be changed.
///
/// A value that no broker can carry is an error of the handler as soon as it returns.
#[derive(Debug)]
pub struct Staging<'a> {
    outbox: &'a Outbox,
    at: usize,
}

impl Staging<'_> {
    /// Sets the key, see [`Outgoing::key`].
    #[allow(clippy::must_use_candidate, reason = "the message is staged already")]
    pub fn key(self, key: impl KeyPart) -> Self {
        self.change(|message| message.key(key))
    }

    /// Sets the id, see [`Outgoing::id`].
    #[allow(clippy::must_use_candidate, reason = "as above")]
    pub fn id(self, id: Uuid) -> Self {
        self.change(|message| message.id(id))
    }

    /// Appends a header, see [`Outgoing::header`].
    #[allow(clippy::must_use_candidate, reason = "as above")]
    pub fn header(self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.change(|message| message.header(name, value))
    }

    /// Sets the event type, see [`Outgoing::event_type`].
    #[allow(clippy::must_use_candidate, reason = "as above")]
    pub fn event_type(self, event_type: impl Into<String>) -> Self {
        self.change(|message| message.event_type(event_type))
    }

    fn change(self, change: impl FnOnce(Outgoing) -> Outgoing) -> Self {
        if let Some(message) = self.outbox.contents().messages.get_mut(self.at) {
            *message = change(std::mem::replace(message, Outgoing::new("", Bytes::new())));
        }
        self
    }
}

/// Shows how many messages are staged.
impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&format_args!("{} messages", self.contents().messages.len())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_changed_after_it_was_staged() {
        let outbox = Outbox::default();
        outbox.publish("a", &1).unwrap().key(7).header("tenant", "acme").event_type("one").id(Uuid::nil());
        outbox.send(Outgoing::new("b", "2")).unwrap();
        let staged = outbox.staged();
        let one = Outgoing::json("a", &1).unwrap().key(7).header("tenant", "acme").event_type("one").id(Uuid::nil());
        assert_eq!(staged, [one, Outgoing::new("b", "2")]);
    }

    #[test]
    fn nothing_can_be_staged_once_the_handler_has_returned() {
        let outbox = Outbox::default();
        outbox.publish("a", &1).unwrap();
        let kept = outbox.clone();
        assert_eq!(outbox.take().len(), 1);
        let why = kept.publish("b", &2).unwrap_err().to_string();
        assert!(why.contains("the handler has returned"), "{why}");
        assert!(kept.take().is_empty());
    }

    #[test]
    fn an_unfit_message_is_refused_at_once() {
        let why = Outbox::default().publish("a\0", &1).unwrap_err().to_string();
        assert!(why.contains("destination"), "{why}");
    }
}
