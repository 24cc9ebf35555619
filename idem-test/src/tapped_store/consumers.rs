//! The consumers of a tapped store.

use idem_core::Store;
use idem_core::store::{
    Consumers, Filter, HandlerId, HandlerMark, KnownHandler, Page, Replay, Replayed, Resolution, Row, Stats, StoreError,
};
use uuid::Uuid;

use super::{StoreTap, TappedStore};

impl<S: Store, T: StoreTap> Consumers for TappedStore<S, T> {
    async fn register(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        self.within.register(consumer, names).await
    }

    async fn rename(&self, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
        self.within.rename(consumer, old, new).await
    }

    async fn mark(&self, handlers: &[HandlerId], mark: HandlerMark) -> Result<bool, StoreError> {
        match mark {
            HandlerMark::Seen => self.tap.before("seen", &[]).await?,
            HandlerMark::Processes => return self.tap.statement(self.within.mark(handlers, mark)).await,
            HandlerMark::Calls => {}
        }
        self.within.mark(handlers, mark).await
    }

    async fn handlers(&self, consumer: Option<&str>) -> Result<Vec<KnownHandler>, StoreError> {
        self.within.handlers(consumer).await
    }

    async fn stats(&self, handlers: &[HandlerId]) -> Result<Stats, StoreError> {
        self.tap.before("stats", &[]).await?;
        self.within.stats(handlers).await
    }

    async fn list(&self, consumer: &str, filter: &Filter, page: Page) -> Result<Vec<Row>, StoreError> {
        self.within.list(consumer, filter, page).await
    }

    async fn replay(&self, consumer: &str, id: i64, how: Replay<'_>) -> Result<Replayed, StoreError> {
        self.within.replay(consumer, id, how).await
    }

    async fn resolve(
        &self,
        consumer: &str,
        id: i64,
        provider_key: Option<Uuid>,
        resolution: &Resolution,
    ) -> Result<bool, StoreError> {
        self.within.resolve(consumer, id, provider_key, resolution).await
    }

    async fn prune(&self) -> Result<u64, StoreError> {
        self.within.prune().await
    }
}
