//! The replies to requests of a tapped store.

use std::time::Duration;

use idem_core::store::{HandlerId, Identity, Replies, StoreError, StoredReply};

use super::{StoreTap, TappedStore, TappedTxn};

/// Handlers of requests get the connection of the wrapped store.
impl<S: Replies, T: StoreTap> Replies for TappedStore<S, T> {
    type Connection = S::Connection;

    const WAITS_FOR_CLAIM: bool = S::WAITS_FOR_CLAIM;

    fn lend(txn: &mut TappedTxn<S::Txn, T>) -> &mut S::Connection {
        S::lend(&mut txn.within)
    }

    async fn register_requests(&self, name: &str, retention: Duration) -> Result<HandlerId, StoreError> {
        self.within.register_requests(name, retention).await
    }

    fn keep_reply(&self, txn: &mut TappedTxn<S::Txn, T>, request: &Identity, reply: StoredReply) {
        self.within.keep_reply(&mut txn.within, request, reply);
    }

    async fn find_reply(
        &self,
        txn: TappedTxn<S::Txn, T>,
        request: &Identity,
    ) -> Result<Option<StoredReply>, StoreError> {
        let TappedTxn { within, .. } = txn;
        self.tap.statement(self.within.find_reply(within, request)).await
    }
}
