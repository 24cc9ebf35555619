//! The start of a worker with a key-value store.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::registry::{Facts, Registered};
use crate::routes::{Route, Routes};
use crate::runtime::Settings;
use crate::store::HandlerId;
use crate::telemetry::Meters;
use crate::worker::Registration;
use crate::{Error, RetryPolicy, age};

use super::run::LONGEST_HELD;
use super::{KeyValue, KeyValueStore};

/// Checks that the store can be used, and that the worker asks for nothing that needs SQL.
pub(super) async fn register<K: KeyValueStore>(
    engine: &KeyValue<K>,
    consumer: &str,
    handlers: &[Arc<dyn Registered<KeyValue<K>>>],
    settings: &Settings,
) -> Result<Registration<KeyValue<K>>, Error> {
    if let Some(flaw) = flaw(engine.retention, settings, handlers.iter().map(|handler| handler.facts())) {
        return Err(Error::Config(flaw));
    }
    engine.store.check(engine.retention).await?;
    let best_effort: Vec<&str> =
        handlers.iter().filter(|handler| handler.is_best_effort()).map(|handler| handler.facts().name).collect();
    if !best_effort.is_empty() {
        tracing::info!(
            consumer,
            handlers = ?best_effort,
            "best effort: the effects of these handlers are deduplicated, and may be repeated after a crash, a failed or late \
             attempt, a shutdown or a failover"
        );
    }
    let route = |(id, handler): (i32, &Arc<dyn Registered<KeyValue<K>>>)| {
        let Facts { name, limits, .. } = handler.facts();
        Route {
            id: HandlerId(id),
            retention: Some(engine.retention),
            meters: Meters::new(consumer, name),
            timeout: limits.timeout.unwrap_or(settings.handler_timeout),
            retry: limits.retry.or(settings.retry).unwrap_or_else(retry),
            is_unclaimed: false,
            is_local_only: false,
            external: None,
            history: OnceCell::new(),
            handler: handler.clone(),
        }
    };
    let routes = Routes {
        routes: (1..).zip(handlers).map(route).collect(),
        nobody: HandlerId(0),
        nobody_meters: Meters::new(consumer, ""),
        route_by: settings.route_by.clone(),
        fan_out: false,
    };
    Ok(Registration { routes, has_history: false, outbox: None })
}

/// The retries by default: three attempts within 15 to 30 seconds. Meanwhile the delivery is unacked.
fn retry() -> RetryPolicy {
    RetryPolicy::new().max_attempts(3).min_delay(Duration::from_secs(5)).factor(2.0)
}

/// Returns what a worker asks for that a key-value store does not have.
fn flaw<'a>(retention: Duration, settings: &Settings, handlers: impl Iterator<Item = &'a Facts>) -> Option<String> {
    let options = [
        (settings.batch > 1, "`.batch(..)` needs transactions, in which several messages share one commit"),
        (settings.inbox, "`.inbox()` needs the tables of a store, from which messages run"),
        (
            settings.fan_out,
            "`.fan_out()` needs the tables of a store, in which a message waits for each of its handlers",
        ),
        (!settings.is_unordered(), "`.order(..)` needs the inbox of a store, in which a message keeps its place"),
        (retention < settings.lease * 2, "`.retention(..)` must be at least twice the `.lease_duration(..)`"),
    ];
    if let Some((_, why)) = options.iter().find(|(is_set, _)| *is_set) {
        return Some(format!(
            "{why}. Use PostgreSQL or SQLite, or change the option: this worker has a key-value store"
        ));
    }
    handlers.into_iter().find_map(|handler| {
        let retry = handler.limits.retry.or(settings.retry);
        if let Some(delay) = retry.map(|retry| retry.longest_between()).filter(|delay| *delay > LONGEST_HELD) {
            return Some(format!(
                "the handler {:?} has a `.retry(..)` that waits {}, and with a key-value store the delivery is unacked meanwhile: set \
                 `.max_delay(..)` to 5 minutes or less, or use PostgreSQL or SQLite, where the message waits in the inbox",
                handler.name,
                age::shown(delay)
            ));
        }
        let needs = [
            (handler.stages, "takes `Outbox`, and messages are staged in transactions"),
            (handler.external.is_some(), "makes an external call, whose intent is a row of an inbox"),
            (handler.is_natural, "is `natural`, and needs no deduplication: consume without idem, or remove it"),
            (handler.takes_batch, "takes a `Batch`, and each message has a record of its own"),
            (handler.limits.is_local_only, "is `local_only`, and there are no local messages"),
            (
                !handler.formerly.is_empty(),
                "has a former name, under which its records are: give it that name again, `name = \"..\"`",
            ),
        ];
        let (_, why) = needs.iter().find(|(is_so, _)| *is_so)?;
        Some(format!(
            "the handler {:?} {why}. This worker has a key-value store; PostgreSQL and SQLite can do that",
            handler.name
        ))
    })
}
