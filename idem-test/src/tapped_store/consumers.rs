//! The consumers of a tapped store.

use idem_core::Store;
use idem_core::store::{
    By, Consumers, HandlerId, HandlerMark, KnownHandler, Of, Question, Replay, Replayed, Resolution, Row, Stats,
    StoreError, Value,
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

    async fn rows(&self, ids: &[i64]) -> Result<Vec<Row>, StoreError> {
        self.tap.before("rows", &[]).await?;
        self.within.rows(ids).await
    }

    async fn replay(&self, of: Of<'_>, how: Replay<'_>, by: &By) -> Result<Vec<(i64, Replayed)>, StoreError> {
        self.within.replay(of, how, by).await
    }

    async fn resolve(
        &self,
        of: Of<'_>,
        provider_key: Option<Uuid>,
        how: &Resolution,
        by: &By,
    ) -> Result<Vec<i64>, StoreError> {
        self.within.resolve(of, provider_key, how, by).await
    }

    async fn ask(&self, question: &Question, values: &[Value]) -> Result<Vec<String>, StoreError> {
        self.within.ask(question, values).await
    }

    async fn prune(&self) -> Result<u64, StoreError> {
        self.within.prune().await
    }
}
