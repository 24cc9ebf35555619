//! Decoded messages that are ready to run.

use std::any::Any;
use std::pin::Pin;

use crate::outbox::Outbox;
use crate::{BoxError, Handler, HasConnection, Store};

/// A future that borrows the transaction that it writes through.
pub(crate) type Running<'a> = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send + 'a>>;

/// A decoded message with all parameters of its handler, ready to run in a transaction.
pub(crate) trait Job<S: Store>: Any + Send {
    /// Returns the outbox into which the run stages messages, if the handler takes it.
    fn outbox(&self) -> Option<&Outbox>;

    fn run(self: Box<Self>, txn: &mut S::Txn) -> Running<'_>;
}

/// One message for one call, or many of a handler that takes a batch.
pub(super) struct Ready<H: Handler> {
    pub(super) input: H::Input,
    pub(super) params: Result<H::Params, BoxError>,
    /// Of many messages: that of the first one, as the other parameters, with what was staged into those of the others.
    pub(super) outbox: Option<Outbox>,
}

impl<S: HasConnection<H::Connection>, H: Handler> Job<S> for Ready<H> {
    fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }

    fn run(self: Box<Self>, txn: &mut S::Txn) -> Running<'_> {
        Box::pin(async move { H::handle(self.input, self.params?, S::connection(txn)).await })
    }
}
