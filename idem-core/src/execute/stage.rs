//! The messages that handlers stage, until the commit writes them.

use crate::outbox::{Origin, Outbox, StagedMessage};
use crate::routes::Route;
use crate::runtime::Pipeline;
use crate::store::StoreError;
use crate::{BoxError, Key, Store, telemetry};

/// The messages of one transaction, in the order in which its handlers staged them. It allocates nothing while it is
/// empty.
#[derive(Default)]
pub(crate) struct Staged(Vec<StagedMessage>);

impl Staged {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<S: Store> Pipeline<S> {
    /// Takes the messages that a handler has staged, which has returned `Ok`, and adds them to those of its transaction.
    /// `key` is that of the incoming message; `None` for a batch handler.
    ///
    /// # Errors
    /// One of them cannot be sent. This is a failure of the handler.
    pub(crate) fn stage(
        &self,
        staged: &mut Staged,
        route: &Route<S>,
        key: Option<&Key>,
        outbox: &Outbox,
    ) -> Result<(), BoxError> {
        let origin = Origin { consumer: &self.consumer, handler: route.handler.name(), key };
        let limit = self.outbox.and_then(|outbox| self.store.bell()?.limit(outbox));
        for (place, mut message) in outbox.take().into_iter().enumerate() {
            let checked = message.check().and_then(|()| message.check_size(limit));
            checked.map_err(|why| format!("message {place} that the handler staged cannot be sent: {why}"))?;
            telemetry::carry_on(&mut message.headers);
            staged.0.push(StagedMessage::new(message.id.unwrap_or_else(|| origin.id(place)), message));
        }
        Ok(())
    }

    /// Gives the messages to the store, whose commit writes them.
    pub(super) fn hand_over(&self, txn: &mut S::Txn, staged: Staged) -> Result<(), StoreError> {
        // Set if any handler can stage.
        let outbox = self.outbox.ok_or_else(|| StoreError::Unavailable("the worker has no outbox".into()))?;
        self.store.stage(txn, outbox, staged.0)
    }
}
