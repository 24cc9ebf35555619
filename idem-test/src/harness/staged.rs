//! The messages that the handler of a trial has staged.

use std::collections::HashMap;

use idem_core::store::OutboxRead;
use idem_core::{BoxError, StagedMessage, Store};

use super::Trial;
use super::trial::CONSUMER;

/// The trace context, which differs between runs.
const TRACE: [&str; 2] = ["traceparent", "tracestate"];

impl<S: Store> Trial<S> {
    /// Checks that what was staged under one id is one message, however often it was staged: a consumer takes the second one
    /// for a copy of the first. `way` is how the messages were delivered last. Returns how many messages were staged so far,
    /// by their ids.
    pub(super) async fn stages_the_same(&self, way: &str) -> Result<usize, BoxError> {
        let staged = self.staged().await?;
        let mut known = HashMap::new();
        for message in &staged {
            let first = *known.entry(message.id()).or_insert(message);
            if content(first) != content(message) {
                return Err(format!(
                    "the handler {:?} says `natural`, and stages different messages under one id. Delivered {way}, its \
                     messages stage {} and then {}, both as {}, which is the id of the first one: stage the same messages in \
                     the same order for each copy, or none",
                    self.subject.handler.name,
                    described(first),
                    described(message),
                    message.id()
                )
                .into());
            }
        }
        Ok(known.len())
    }

    /// Reads all messages that were staged, in their order. Nothing publishes them.
    async fn staged(&self) -> Result<Vec<StagedMessage>, BoxError> {
        if !self.subject.stages {
            return Ok(Vec::new());
        }
        let outbox = self.store.register_outbox(CONSUMER).await?;
        let rows = self.store.read_outbox(outbox, &OutboxRead::ALL).await?.rows;
        Ok(rows.into_iter().map(|row| row.message).collect())
    }
}

/// Returns what a consumer gets of a message, besides its id.
fn content(message: &StagedMessage) -> impl PartialEq + '_ {
    let headers = message.headers().iter().filter(|(name, _)| !TRACE.contains(name)).collect::<Vec<_>>();
    let facts = (message.to(), message.key(), message.event_type(), message.content_type());
    (facts, &message.payload()[..], headers)
}

fn described(message: &StagedMessage) -> String {
    format!("{:?} to {:?}", String::from_utf8_lossy(message.payload()), message.to())
}
