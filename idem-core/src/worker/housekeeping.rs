//! What a worker does beside its messages: it prunes old claims and reads the gauges.

use std::time::Duration;

use crate::Store;
use crate::pipeline::Pipeline;
use crate::store::Fault;

const LEVEL: Duration = Duration::from_secs(15);
const PRUNE: Duration = Duration::from_secs(60);

/// Reads how full the inbox is, for the gauges, until it is dropped.
pub(crate) async fn level<S: Store>(pipeline: &Pipeline<S>) {
    let handlers = pipeline.routes.ids();
    loop {
        match pipeline.store.level(&handlers).await {
            Ok(level) => {
                pipeline.gauges.parked.set(level.parked as f64);
                pipeline.gauges.dead.set(level.dead as f64);
                pipeline.gauges.oldest_due.set(level.oldest_due.unwrap_or_default().as_secs_f64());
            }
            Err(fault) => drop(pipeline.hold_for(fault)),
        }
        pipeline.outage.over().await;
        tokio::time::sleep(LEVEL).await;
    }
}

/// Removes claims that are older than the retention, until it is dropped. One pruner works at a time, whatever the
/// number of workers.
pub(crate) async fn prune<S: Store>(pipeline: &Pipeline<S>) {
    loop {
        // The wait comes first: a deploy that starts many workers has better things to do.
        tokio::time::sleep(PRUNE).await;
        pipeline.outage.over().await;
        match pipeline.store.prune().await {
            Ok(pruned) if pruned.claims > 0 => tracing::debug!(claims = pruned.claims, "old claims are pruned"),
            Ok(_) => {}
            Err(fault @ Fault::Outage(_)) => drop(pipeline.hold_for(fault)),
            Err(fault) => tracing::debug!(%fault, "pruning goes on later"),
        }
    }
}
