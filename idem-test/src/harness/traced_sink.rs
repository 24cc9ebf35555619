//! A sink whose messages are written into the trace of the process of its relay.

use idem_core::{Sink, SinkError, StagedMessage};

use crate::tap::SinkTap;
use crate::trace::{ProcessTrace, Request, Subject};

impl SinkTap for Option<ProcessTrace> {
    async fn publish<K: Sink>(&self, sink: &K, message: &StagedMessage) -> Result<(), SinkError> {
        let of = Subject::of_outgoing(message.id());
        let sent = Request::send(self.clone(), ("published", of), (String::new(), ""), "unconfirmed").await;
        let answer = sink.publish(message).await;
        match &answer {
            Ok(()) => sent.ends_as("confirmed"),
            Err(SinkError::Message(_)) => sent.ends_as("refused"),
            Err(_) => drop(sent),
        }
        answer
    }
}
