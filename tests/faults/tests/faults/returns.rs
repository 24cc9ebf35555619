//! How often RabbitMQ had to take a message back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use idem_faults::{Journal, Tuned};

/// The highest delivery count of any message that the client can read.
#[derive(Clone, Default)]
pub(crate) struct Returns(Arc<AtomicU32>);

impl Returns {
    /// Watches a worker's deliveries, in addition to the journal.
    pub(crate) fn watch<Src: idem::Source>(&self, journal: &Journal, worker: Tuned<Src>) -> Tuned<Src> {
        let (most, journal) = (self.0.clone(), journal.clone());
        worker.observe(move |observed| {
            journal.note(observed);
            let delivery = observed.delivery;
            if delivery.unrepresentable().is_none() {
                most.fetch_max(delivery.delivery_count().unwrap_or_default(), Relaxed);
            }
        })
    }

    pub(crate) fn most(&self) -> u32 {
        self.0.load(Relaxed)
    }
}
