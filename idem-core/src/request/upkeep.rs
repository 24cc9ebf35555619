//! The registration of requests in the database, and what is done each minute.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::outbox::Unread;
use crate::routes::Routes;
use crate::runtime::Settings;
use crate::store::{HandlerId, HandlerMark, OutboxId, Replies, StoreError};
use crate::worker::register_handlers;

use super::RequestOptions;
use super::runner::{RequestRunner, Shared};

/// What the database knows of requests.
pub(super) struct Registered<S> {
    pub(super) handler: HandlerId,
    pub(super) outbox: OutboxId,
    /// The handlers of local messages, and the limits of their worker.
    pub(super) local: Option<(Routes<S>, Settings)>,
}

/// How often claims and replies are pruned. A service without a worker has nobody else who does it.
const EVERY: Duration = Duration::from_secs(60);

impl<S: Replies> RequestRunner<S> {
    /// Returns the registration, which the first request makes. Cancel safe: it goes on in a task of its own, since those who wait
    /// for it may have less time than it takes.
    pub(super) async fn registered(&self) -> Result<Arc<Registered<S>>, StoreError> {
        let known = || self.shared.registered.lock().clone();
        if let Some(registered) = known() {
            return Ok(registered);
        }
        let one = self.shared.registration.clone().lock_owned().await;
        if let Some(registered) = known() {
            return Ok(registered);
        }
        let (shared, options) = (self.shared.clone(), self.options.clone());
        let registering = tokio::spawn(async move {
            let _one = one;
            let registered = Arc::new(shared.register(&options).await?);
            *shared.registered.lock() = Some(registered.clone());
            tokio::spawn(upkeep(Arc::downgrade(&shared), options));
            Ok::<_, StoreError>(registered)
        });
        registering.await.unwrap_or_else(|ended| Err(StoreError::Unavailable(ended.into())))
    }
}

impl<S: Replies> Shared<S> {
    async fn register(&self, options: &RequestOptions<S>) -> Result<Registered<S>, StoreError> {
        let Self { name, store, .. } = self;
        let unavailable = |error: crate::Error| {
            tracing::error!(name, %error, "requests could not be registered");
            StoreError::Unavailable(error.into())
        };
        if options.retention.is_zero() {
            let why = "the retention of the requests is zero, so that a repeat would run again: set it for as long as clients repeat";
            return Err(unavailable(crate::Error::Config(why.to_owned())));
        }
        let handler = store.register_requests(name, options.retention).await?;
        let outbox = store.register_outbox(name).await.map_err(unavailable)?;
        let local = match &options.local {
            None => None,
            Some(worker) => {
                let registered = register_handlers(&worker.consumer, store, &worker.handlers, &worker.settings).await;
                Some((registered.map_err(unavailable)?.routes, worker.settings.clone()))
            }
        };
        Ok(Registered { handler, outbox, local })
    }
}

/// Prunes, warns of messages that no relay publishes, and records that the handler of requests is alive, until all runners of the
/// name are dropped. If the database was restored without that handler, it is registered again, under its number. No request
/// depends on this, so a failure is only logged.
async fn upkeep<S: Replies>(shared: Weak<Shared<S>>, options: RequestOptions<S>) {
    let mut unread = Unread::default();
    loop {
        tokio::time::sleep(EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        unread.check(&shared.store, Some(&shared.name)).await;
        let handler = shared.registered.lock().as_ref().map(|registered| registered.handler);
        let known = shared.store.mark(handler.as_slice(), HandlerMark::Seen).await;
        let kept = match known {
            Ok(true) => Ok(()),
            Ok(false) => shared.register(&options).await.map(|registered| {
                *shared.registered.lock() = Some(Arc::new(registered));
            }),
            Err(fault) => Err(fault),
        };
        let pruned = match kept {
            Ok(()) => shared.store.prune().await,
            Err(fault) => Err(fault),
        };
        if let Err(fault) = pruned {
            tracing::debug!(name = shared.name, error = %fault, "the upkeep of requests has failed; it is repeated");
        }
    }
}
