//! The operator calls of a tapped store.

use idem_core::store::{
    Filter, HandlerId, HandlerRows, Operator, Page, Pruned, Remedies, Replayed, Resolution, Row, Stats, StoreError,
};
use idem_core::{Key, Store};
use uuid::Uuid;

use super::{StoreTap, TappedStore};

impl<S: Store, T: StoreTap> Operator for TappedStore<S, T> {
    async fn stats(&self, handlers: &[HandlerId]) -> Result<Stats, StoreError> {
        self.tap.before("stats", &[]).await?;
        self.within.stats(handlers).await
    }

    async fn waiting(&self, consumer: &str) -> Result<Vec<HandlerRows>, StoreError> {
        self.within.waiting(consumer).await
    }

    fn cures(&self, consumer: &str, handler: &str, new: &str) -> Remedies {
        self.within.cures(consumer, handler, new)
    }

    async fn consumers(&self) -> Result<Vec<String>, StoreError> {
        self.within.consumers().await
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, StoreError> {
        self.within.list(consumer, filter, page).await
    }

    async fn replay(&self, consumer: &str, id: i64, force: bool) -> Result<Replayed, StoreError> {
        self.within.replay(consumer, id, force).await
    }

    async fn replay_as(&self, consumer: &str, id: i64, key: &Key) -> Result<Replayed, StoreError> {
        self.within.replay_as(consumer, id, key).await
    }

    async fn discard(&self, consumer: &str, id: i64) -> Result<bool, StoreError> {
        self.within.discard(consumer, id).await
    }

    async fn resolve(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Uuid,
        resolution: &Resolution,
    ) -> Result<bool, StoreError> {
        self.within.resolve(consumer, id, provider_key, resolution).await
    }

    async fn prune(&self) -> Result<Pruned, StoreError> {
        self.within.prune().await
    }
}
