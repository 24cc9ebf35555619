//! The start of a worker: all checks that can fail, and the subscription.

use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout;

use crate::registry::Facts;
use crate::runtime::Pipeline;
use crate::store::ConnectionShare;
use crate::{Error, Source, Store, SubscribeOptions, age, telemetry};

use super::builder::Parts;
use super::fitness;
use super::receive::CLOSE;
use super::register::{self, Registration};
use super::run::Tasks;

/// Checks, registers, subscribes, and spawns the tasks. Returns `None` if `shutdown` came first.
pub(super) async fn start<S: Store, Src: Source>(
    mut parts: Parts<S, Src>,
    shutdown: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<Tasks<S, Src>>, Error> {
    let handlers: Vec<&Facts> = parts.handlers.iter().map(|handler| handler.facts()).collect();
    parts.settings.check(&parts.consumer)?;
    fitness::distinct(&handlers, &parts.settings)?;
    fitness::routing(&handlers, &parts.source, &parts.settings)?;
    fitness::each(&handlers, &parts.source, &parts.settings)?;
    let connections = parts.store.facts().connections.add(parts.settings.connections());
    let Registration { routes, has_history, outbox } =
        register::register(&parts.consumer, &parts.store, &parts.handlers, &parts.settings).await?;
    let limit = |deliveries: usize| u16::try_from(deliveries).unwrap_or(u16::MAX);
    let options = SubscribeOptions {
        consumer: parts.consumer.clone(),
        max_unsettled: limit(parts.settings.unsettled()),
        least_unsettled: limit(parts.settings.least_unsettled()),
        handler_timeout: routes.longest_timeout(),
        order: parts.settings.order,
        has_history,
    };
    let opened = tokio::select! {
        opened = parts.source.subscribe(options.clone()) => opened,
        () = shutdown => return Ok(None),
    };
    opened.map_err(|source| Error::Broker { what: format!("could not consume {}", parts.source.name()), source })?;
    if let Err(refused) = age::check(&parts.source, &routes) {
        // Returns deliveries received in the meantime.
        let _ = timeout(CLOSE, parts.source.close()).await;
        return Err(refused);
    }
    tell(&parts);
    tell_of_connections(&parts, &connections);
    telemetry::describe();
    let Parts { consumer, store, source, settings, health, .. } = parts;
    health.set_broker(true);
    health.set_database(true);
    let pipeline = Arc::new(Pipeline::new(consumer, store, &source, routes, outbox, settings, health));
    Ok(Some(Tasks::spawn(pipeline, source, options, connections)))
}

/// Logs the worker's settings, for later readers of the log.
fn tell<S: Store, Src: Source>(parts: &Parts<S, Src>) {
    let Parts { consumer, store, source, handlers, settings, .. } = parts;
    let handlers: Vec<&str> = handlers.iter().map(|handler| handler.facts().name).collect();
    tracing::info!(
        consumer,
        ?handlers,
        source = source.name(),
        broker = source.system(),
        store = store.facts().name,
        concurrency = settings.concurrency,
        prefetch = settings.unsettled(),
        inbox_concurrency = settings.inbox_concurrency(),
        batch = settings.batch,
        inbox = settings.inbox,
        fan_out = settings.fan_out,
        order = ?settings.order,
        version = env!("CARGO_PKG_VERSION"),
        "the worker has started"
    );
    // As the profile of the program says, for its dependencies too.
    if cfg!(panic = "abort") {
        tracing::warn!(
            consumer,
            "the program is built with `panic = \"abort\"`: a panic of a handler, a key or a codec ends the process, as a crash \
             does, and is no failure of its message"
        );
    }
}

/// Logs the sum of the connections that the workers of the store can use, if it has fewer. By now all workers of a group
/// have their shares, so the first of them has the sum of all.
fn tell_of_connections<S: Store, Src>(Parts { consumer, settings, .. }: &Parts<S, Src>, connections: &ConnectionShare) {
    let Some(wanted) = connections.report() else { return };
    let (own, direct, inbox) = (settings.connections(), settings.direct(), settings.inbox_concurrency());
    let others = own - direct - inbox;
    tracing::info!(
        consumer,
        "this worker can use {own} connections at once ({direct} by `.concurrency(..)`, {inbox} by `.inbox_concurrency(..)`, \
         {others} to store deliveries and for statements of its own), and all workers of this store together {wanted}, which is more \
         than it has, so messages wait for connections: set `.connections({wanted})` to avoid this"
    );
}
