//! Takes rows from the inbox.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use uuid::Uuid;

use crate::Store;
use crate::runtime::Pipeline;
use crate::store::{HandlerId, Row, RowKind, StoreError, TakeLimit};

use super::looks::Looks;

/// Takes the due rows of a worker's handlers.
pub(super) struct Taker<S: Store> {
    pub(super) pipeline: Arc<Pipeline<S>>,
    pub(super) handlers: Vec<HandlerId>,
    pub(super) looks: Looks,
}

/// How long rows are taken without a poll while all slots are in demand. A suspect stops new starts up to that much
/// later.
pub(super) const POLL_DUE: Duration = Duration::from_millis(100);

impl<S: Store> Taker<S> {
    pub(super) fn new(pipeline: Arc<Pipeline<S>>) -> Self {
        Self { handlers: pipeline.routes.ids(), pipeline, looks: Looks::default() }
    }

    /// Takes rows under `lock`. The token is generated before the take, so that rows whose take got no response are found by
    /// it, and can then begin. They may have been charged a start, so the lock is held until then, except in an outage: no
    /// suspect of another database may wait for its end. Returns `None` after that: the rows were given back, since anything
    /// may have started meanwhile.
    pub(super) async fn take<L>(
        &self,
        kind: RowKind,
        limit: TakeLimit,
        lock: L,
    ) -> Result<Option<(Vec<Row>, L)>, StoreError> {
        let Pipeline { store, outage, stop, draining, .. } = &*self.pipeline;
        let (token, mut lock) = (Uuid::new_v4(), Some(lock));
        let asked = async {
            let _own = self.pipeline.own_statements.lock().await;
            store.take(&self.handlers, kind, limit, token, self.pipeline.settings.lease).await
        };
        let mut rows = match self.unless_away(&mut lock, asked).await {
            Err(fault @ StoreError::ConnectionLost(_)) => {
                outage.report(&fault);
                // A lost connection is no outage until a ping fails, so the first read may come too early.
                let found = outage.insist(stop, || store.rows_by_token(token));
                let found = async {
                    tokio::select! {
                        biased;
                        rows = found => rows.unwrap_or_default(),
                        // A drain does not wait for the end of an outage.
                        () = async { draining.cancelled().await; outage.began().await } => Vec::new(),
                    }
                };
                Ok(self.unless_away(&mut lock, found).await)
            }
            answer => answer,
        }?;
        let Some(lock) = lock else {
            let _held = self.pipeline.leases.hold(&rows);
            join_all(rows.iter().map(|row| self.pipeline.snooze(row, Duration::ZERO))).await;
            return Ok(None);
        };
        rows.iter_mut().for_each(|row| self.pipeline.complete(row));
        Ok(Some((rows, lock)))
    }

    /// Waits for `work`. If the database becomes unavailable meanwhile, that ends `lock`: the wait may last as long as the outage.
    async fn unless_away<L, T>(&self, lock: &mut Option<L>, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = self.pipeline.outage.began() => *lock = None,
        }
        work.await
    }
}
