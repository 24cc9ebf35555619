//! Messages that another version of the service has stored for an external call, which the handlers of this one do not make.

use crate::Store;
use crate::runtime::Pipeline;
use crate::store::RELEASED_AT_ONCE;

/// Lets messages run for which no call has begun: the handlers of this version do what they do in their own way. Warns of
/// those whose call may have begun, which only the other version can complete. Its failure is not an outage: the next hour
/// it is repeated.
pub(super) async fn release<S: Store>(pipeline: &Pipeline<S>) {
    let routes = pipeline.routes.routes.iter().filter(|route| route.external.is_none());
    let handlers: Vec<_> = routes.map(|route| route.id).collect();
    let consumer = &pipeline.consumer;
    loop {
        let left = match pipeline.store.release_calls(&handlers).await {
            Ok(left) => left,
            Err(fault) => {
                tracing::debug!(consumer, error = %fault, "messages of another version were not looked at; it is retried later");
                return;
            }
        };
        if left.released > 0 {
            let messages = left.released;
            tracing::info!(
                consumer,
                messages,
                "messages run without the external call of another version of the service"
            );
            pipeline.wake_inbox();
        }
        if left.released >= u64::from(RELEASED_AT_ONCE) {
            continue;
        }
        if left.in_doubt > 0 {
            tracing::warn!(
                consumer,
                messages = left.in_doubt,
                "the handlers of this version make no external call, and messages wait for which a call may have begun in another \
                 version of the service: start that version again, or make dead letters of them and resolve each, see \
                 \"Deployments\" in the guide `docs::external`; this is repeated every hour"
            );
        }
        return;
    }
}
