//! The outbox of a tapped store.

use idem_core::store::{Bell, OutboxId, OutboxRows, StoreError};
use idem_core::{StagedMessage, Store};

use super::{StoreTap, TappedStore, TappedTxn};

impl<S: Store, T: StoreTap> OutboxRows for TappedStore<S, T> {
    async fn register_outbox(&self, name: &str) -> Result<OutboxId, StoreError> {
        self.within.register_outbox(name).await
    }

    fn stage(
        &self,
        txn: &mut TappedTxn<S::Txn, T>,
        outbox: OutboxId,
        messages: Vec<StagedMessage>,
    ) -> Result<(), StoreError> {
        self.within.stage(&mut txn.within, outbox, messages)
    }

    fn bell(&self) -> Option<&Bell> {
        self.within.bell()
    }
}
