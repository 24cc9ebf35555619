//! An instrumented sink, with the failpoint between confirm and delete.
//!
//! The failpoint belongs to the demo: a relay deletes a message once its sink has returned, so a process that ends
//! itself here ends between the two.

use std::sync::atomic::Ordering;

use idem::adapter::{Sink, SinkError, StagedMessage};

use crate::journal::Event;
use crate::plan::id_of;
use crate::watched::Watch;

/// A sink that writes into the journal when a message is published, and when the call has ended.
pub(crate) struct WatchedSink<K> {
    pub(crate) sink: K,
    pub(crate) watch: Watch,
}

impl<K: Sink> Sink for WatchedSink<K> {
    fn system(&self) -> &'static str {
        self.sink.system()
    }

    fn name(&self) -> &str {
        self.sink.name()
    }

    fn limit(&self) -> Option<usize> {
        self.sink.limit()
    }

    async fn open(&self) -> Result<(), SinkError> {
        self.sink.open().await?;
        self.watch.opened.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let id = id_of(message.payload()).ok_or_else(|| SinkError::message("no message of the demo"))?;
        let _in_hand = self.watch.take(Event::Delivered, id);
        self.watch.signals.wait().await;
        self.sink.publish(message).await?;
        self.watch.failpoint(id).await.map_err(SinkError::broker)
    }

    async fn close(&self) {
        self.sink.close().await;
    }
}
