//! The parameter with which a handler stages messages.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
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
/// Clones stage into the same place. After the handler has ended, staging is an error, also in a task that it has spawned and
/// not awaited; the first one of each handler is logged.
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
    /// The name of the handler, once it has ended.
    ended: Option<&'static str>,
}

/// The handlers of which the log says that they stage messages after their end.
static LOGGED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

impl Outbox {
    /// Stages a message whose payload is `event` as JSON. `to` is the routing key on RabbitMQ, the subject on NATS, and
    /// the topic on Kafka. The message can be changed by the methods of what this returns.
    ///
    /// # Errors
    /// The event has no JSON form, `to` cannot be sent, or the handler has ended.
    pub fn publish<E: Serialize + ?Sized>(&self, to: impl Into<String>, event: &E) -> Result<Staging<'_>, BoxError> {
        self.send(Outgoing::json(to, event)?)
    }

    /// Stages a message.
    ///
    /// # Errors
    /// It has a value that cannot be sent, or the handler has ended.
    pub fn send(&self, message: Outgoing) -> Result<Staging<'_>, BoxError> {
        message.check()?;
        let mut contents = self.0.lock();
        if let Some(handler) = contents.ended {
            if LOGGED.lock().insert(handler) {
                tracing::error!(
                    handler,
                    "a message was staged after its handler had ended, and is lost: await in the handler each task that it \
                     spawns to stage messages"
                );
            }
            let why = "has ended, so nothing more can be staged: await in it what stages messages";
            return Err(format!("the handler {handler:?} {why}").into());
        }
        contents.messages.push(message);
        Ok(Staging { outbox: self, at: contents.messages.len() - 1 })
    }

    /// Returns copies of the messages that are staged, local ones included, in their order, for a test.
    pub fn staged(&self) -> Vec<Outgoing> {
        self.0.lock().messages.clone()
    }

    /// Takes the messages that were staged into another outbox, behind those that are staged here. That one refuses more.
    pub(crate) fn append(&self, other: &Self, handler: &'static str) {
        other.end(handler);
        let staged = other.take();
        self.0.lock().messages.extend(staged);
    }

    /// Refuses all further messages, since the handler with this name has ended.
    pub(crate) fn end(&self, handler: &'static str) {
        self.0.lock().ended = Some(handler);
    }

    /// Takes the messages that were staged.
    pub(crate) fn take(&self) -> Vec<Outgoing> {
        std::mem::take(&mut self.0.lock().messages)
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
    pub fn key(self, key: impl KeyPart) -> Self {
        self.change(|message| message.key(key))
    }

    /// Sets the id, see [`Outgoing::id`].
    pub fn id(self, id: Uuid) -> Self {
        self.change(|message| message.id(id))
    }

    /// Appends a header, see [`Outgoing::header`].
    pub fn header(self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.change(|message| message.header(name, value))
    }

    /// Sets the event type, see [`Outgoing::event_type`].
    pub fn event_type(self, event_type: impl Into<String>) -> Self {
        self.change(|message| message.event_type(event_type))
    }

    fn change(self, change: impl FnOnce(Outgoing) -> Outgoing) -> Self {
        if let Some(message) = self.outbox.0.lock().messages.get_mut(self.at) {
            *message = change(std::mem::replace(message, Outgoing::new("", Bytes::new())));
        }
        self
    }
}

/// Shows how many messages are staged.
impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outbox").field(&format_args!("{} messages", self.0.lock().messages.len())).finish()
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
    fn nothing_can_be_staged_once_the_handler_has_ended_and_the_log_says_so_once() {
        let outbox = Outbox::default();
        outbox.publish("a", &1).unwrap();
        let kept = outbox.clone();
        outbox.end("outlived");
        let log = crate::log_of_tests::text(|| {
            for _ in 0..2 {
                let why = kept.publish("b", &2).unwrap_err().to_string();
                assert!(why.contains("the handler \"outlived\" has ended"), "{why}");
            }
        });
        assert!(log.contains("ERROR") && log.contains("outlived"), "{log}");
        assert_eq!(log.matches("after its handler had ended").count(), 1, "{log}");
        assert_eq!(kept.take().len(), 1);
    }

    #[test]
    fn an_undeliverable_message_is_refused_at_once() {
        let why = Outbox::default().publish("a\0", &1).unwrap_err().to_string();
        assert!(why.contains("destination"), "{why}");
    }
}
