//! The messages that handlers stage, until the commit writes them.

use crate::outbox::{Origin, Outbox, StagedMessage};
use crate::routes::Route;
use crate::runtime::{OutboxGate, Pipeline};
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
    /// `key` is that of the incoming message. It counts only for handlers of one message: a batch handler would stage
    /// others if it ran with other messages.
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
        let key = key.filter(|_| !route.handler.takes_batch());
        let origin = Origin { consumer: &self.consumer, handler: route.handler.name(), key };
        let messages = outbox.take();
        let gate = self.outbox.as_ref();
        if let (Some(true), false) = (gate.map(OutboxGate::is_full), messages.is_empty()) {
            let backlog = self.settings.backlog.unwrap_or_default();
            return Err(
                format!("more than {backlog} messages of the outbox wait to be published, see `.backlog(..)`").into()
            );
        }
        let limit = gate.and_then(|outbox| self.store.bell()?.limit(outbox.id));
        for (place, mut message) in messages.into_iter().enumerate() {
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
        let none = || StoreError::Unavailable("the worker has no outbox".into());
        let outbox = self.outbox.as_ref().ok_or_else(none)?;
        self.store.stage(txn, outbox.id, staged.0)
    }
}
