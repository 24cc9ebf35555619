//! The messages that handlers stage, until the commit writes them.

use crate::outbox::{Ids, Origin, Outbox, StagedMessage};
use crate::routes::Route;
use crate::runtime::Pipeline;
use crate::store::{Identity, LocalMessage};
use crate::{BoxError, Delivery, Store, telemetry};

/// The messages of one transaction, in the order in which its handlers staged them. It allocates nothing while it is
/// empty.
#[derive(Default)]
pub(super) struct Staged {
    pub(super) outgoing: Vec<StagedMessage>,
    pub(super) local: Vec<LocalMessage>,
}

impl<S: Store> Pipeline<S> {
    /// Takes the messages that a handler has staged, which has returned `Ok`, and adds them to those of its transaction.
    /// The incoming message counts only for handlers of one message: a batch handler would stage others if it ran with other
    /// messages.
    ///
    /// # Errors
    /// One of them cannot be sent. This is a failure of the handler.
    pub(super) fn stage(
        &self,
        staged: &mut Staged,
        route: &Route<S>,
        incoming: (&Identity, &Delivery),
        outbox: &Outbox,
    ) -> Result<(), BoxError> {
        let incoming = (!route.handler.facts().takes_batch).then_some(incoming);
        let messages = outbox.take();
        if messages.is_empty() {
            return Ok(());
        }
        let (consumer, handler) = (self.consumer.as_str(), route.handler.facts().name);
        let gate = self.outbox.as_ref().ok_or_else(|| undeclared(handler))?;
        let key = incoming.map(|(identity, _)| &identity.key);
        let origin = Origin { namespace: gate.id.namespace, consumer, handler, key };
        let limit = self.store.facts().notifier.limit(gate.id);
        let mut ids = Ids::default();
        for (place, mut message) in messages.into_iter().enumerate() {
            let limit = limit.filter(|_| !message.is_local);
            // First, because these headers count as well for the size.
            telemetry::carry_on(&mut message.headers);
            let checked = message.check().and_then(|()| message.check_size(limit)).and_then(|()| ids.check(&message));
            checked.map_err(|why| format!("message {place} that the handler staged cannot be sent: {why}"))?;
            let id = message.id.unwrap_or_else(|| origin.id(place));
            if message.is_local {
                staged.local.push(self.local(id, message, incoming.map(|(_, delivery)| delivery))?);
                gate.hands_over();
            } else {
                gate.publishes();
                staged.outgoing.push(StagedMessage::new(id, message));
            }
        }
        Ok(())
    }
}

/// The error of a handler that stages messages although none of its parameters has announced it.
fn undeclared(handler: &str) -> String {
    format!(
        "the handler {handler:?} stages messages, and its worker has no outbox, because no parameter of a handler has said \
         that it needs one: an extractor that passes on an `Outbox` has to declare \
         `const STAGES: bool = true;` in its implementation of `Param`"
    )
}
