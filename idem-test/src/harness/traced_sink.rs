//! A sink whose messages are written into a trace.

use idem_core::{Sink, SinkError, StagedMessage};

use crate::trace::{ProcessTrace, Request, Subject};

/// A sink whose messages are written into the trace of the process of its relay.
#[derive(Debug)]
pub struct TracedSink<K> {
    within: K,
    process: Option<ProcessTrace>,
}

impl<K> TracedSink<K> {
    pub(super) fn new(within: K, process: Option<ProcessTrace>) -> Self {
        Self { within, process }
    }
}

impl<K: Sink> Sink for TracedSink<K> {
    fn system(&self) -> &'static str {
        self.within.system()
    }

    fn name(&self) -> &str {
        self.within.name()
    }

    fn limit(&self) -> Option<usize> {
        self.within.limit()
    }

    async fn open(&self) -> Result<(), SinkError> {
        self.within.open().await
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let of = Subject::of_outgoing(message.id());
        let sent = Request::send(self.process.clone(), ("published", of), (String::new(), ""), "unconfirmed").await;
        let answer = self.within.publish(message).await;
        match &answer {
            Ok(()) => sent.ends_as("confirmed"),
            Err(SinkError::Message(_)) => sent.ends_as("refused"),
            Err(_) => drop(sent),
        }
        answer
    }

    async fn close(&self) {
        self.within.close().await;
    }
}
