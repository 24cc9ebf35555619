//! Local messages: from one handler to another one of the same worker, without a broker.

use bytes::Bytes;
use serde::Serialize;
use uuid::Uuid;

use crate::outbox::{Outbox, Outgoing, Staging};
use crate::{BoxError, Handler};

impl Outbox {
    /// Stages a message for another handler of this worker, without a broker and without a relay. Its payload is `message`
    /// as JSON. It is stored in the inbox by the transaction of this handler, so it exists if, and only if, that is
    /// committed; then it runs as any message of the inbox does, with retries and dead letters. The worker of this process
    /// runs it at once, and other processes find it at their next [poll](crate::Worker::poll_interval). Local messages have no order.
    ///
    /// Its key is that of its handler: `key = "order_id"` is a field of `message`, and a copy that comes from a broker is
    /// a duplicate, if its payload is the same. With `key = message_id`, and for a key that needs what only a broker's
    /// delivery has (a position, a header that is not set), it is the message id, which is derived as that of a
    /// [published](Self::publish) message. A message whose key was claimed before, and whose claim is still kept, is skipped,
    /// or a dead letter, `conflict`, if the other one had another payload. While another transaction holds that claim, this
    /// handler is rolled back and run again later, without an attempt.
    ///
    /// ```
    /// # use idem_core::{BoxError, Delivery, Handler, Key, KeyError, Outbox};
    /// # struct OrderPaid { order_id: i64 } struct PgConnection;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Receipt { order_id: i64 }
    /// # #[allow(non_camel_case_types)] struct send_receipt;
    /// # impl Handler for send_receipt {
    /// #     const NAME: &'static str = "send_receipt";
    /// #     type Message = Receipt; type Input = Receipt; type Params = (); type Connection = PgConnection;
    /// #     fn key(receipt: &Receipt, _: &Delivery) -> Result<Key, KeyError> { Key::of(&receipt.order_id) }
    /// #     async fn handle(_: Receipt, (): (), _: &mut PgConnection) -> Result<(), BoxError> { Ok(()) }
    /// # }
    /// async fn order_paid(event: OrderPaid, tx: &mut PgConnection, outbox: Outbox) -> Result<(), BoxError> {
    ///     # let _ = tx;
    ///     outbox.local::<send_receipt>(&Receipt { order_id: event.order_id })?;
    ///     Ok(())
    /// }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
    /// let outbox = Outbox::default();
    /// order_paid(OrderPaid { order_id: 7 }, &mut PgConnection, outbox.clone()).await?;
    /// let receipt = &outbox.staged()[0];
    /// assert_eq!((receipt.is_local(), receipt.to()), (true, "send_receipt"));
    /// assert_eq!(receipt.decode::<Receipt>()?.order_id, 7);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The message has no JSON form, or the handler has ended. When it has returned, it is a failure of this handler if
    /// the worker does not have that handler, or if that handler could not take the message: its codec does not read it,
    /// its key is empty, or it is larger than [`max_payload`](crate::Worker::max_payload).
    pub fn local<H: Handler<Message: Serialize>>(&self, message: &H::Message) -> Result<LocalStaging<'_>, BoxError> {
        self.stage_local(Outgoing::json(H::NAME, message)?)
    }

    /// Stages a message of these bytes for another handler of this worker, as [`local`](Self::local) does, for a handler
    /// whose codec does not read JSON.
    ///
    /// # Errors
    /// As those of [`local`](Self::local).
    pub fn send_local<H: Handler>(&self, payload: impl Into<Bytes>) -> Result<LocalStaging<'_>, BoxError> {
        self.stage_local(Outgoing::new(H::NAME, payload))
    }

    fn stage_local(&self, message: Outgoing) -> Result<LocalStaging<'_>, BoxError> {
        Ok(LocalStaging(self.send(Outgoing { is_local: true, ..message })?))
    }
}

/// A local message that was just staged, to be changed.
#[derive(Debug)]
pub struct LocalStaging<'a>(Staging<'a>);

impl LocalStaging<'_> {
    /// Sets the message id, which is the key for a handler with `key = message_id`. By default it is derived from the
    /// incoming message, so that whatever runs twice stages the same message.
    pub fn id(self, id: Uuid) -> Self {
        Self(self.0.id(id))
    }

    /// Appends a header; a header with the same name is not replaced.
    pub fn header(self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        Self(self.0.header(name, value))
    }
}
