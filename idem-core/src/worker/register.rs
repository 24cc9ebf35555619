//! The registration of a worker in its database, before it takes any delivery.

use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::registry::{Facts, Registered};
use crate::routes::{Route, RouteCall, Routes};
use crate::runtime::Settings;
use crate::store::{HandlerId, History, OutboxId, Remedies, StoreError, as_ours};
use crate::telemetry::Meters;
use crate::{Error, Store};

use super::unregistered::{Ours, Unregistered, renamed};

/// The handlers of a worker, registered.
pub(super) struct Registration<S: Store> {
    pub(super) routes: Routes<S>,
    /// Whether this consumer has handled any message before, under any of its handlers.
    pub(super) has_history: bool,
    /// The outbox of the consumer, if a handler stages messages.
    pub(super) outbox: Option<OutboxId>,
}

/// Registers the handlers and records that a worker has them. Warns if one of them may be another one under a new name.
/// Fails if the inbox has rows that no worker would ever run.
pub(super) async fn register<S: Store>(
    consumer: &str,
    store: &S,
    handlers: &[Arc<dyn Registered<S>>],
    settings: &Settings,
) -> Result<Registration<S>, Error> {
    let failed = |fault: StoreError| failed(consumer, fault);
    let facts: Vec<&Facts> = handlers.iter().map(|handler| handler.facts()).collect();
    let names: Vec<&str> = [""].into_iter().chain(facts.iter().map(|handler| handler.name)).collect();
    rename(consumer, store, &facts).await?;
    let ids = store.register(consumer, &names).await.map_err(failed)?;
    apart(consumer, &names, &ids)?;
    let retentions = store.retention(&ids).await.map_err(failed)?;
    // Recorded before any check can fail: if two workers would each refuse because of the other's rows, the one that
    // starts second succeeds.
    store.record_seen(&ids).await.map_err(failed)?;
    let mut histories = store.histories(consumer).await.map_err(failed)?;
    histories.iter_mut().for_each(|known| as_ours(&mut known.handler, &known.formerly, &names));
    check_histories(consumer, store, &facts, settings, &histories).await?;
    let calls = calls(store, ids.get(1..).unwrap_or_default(), &facts).await?;
    let mut ids = ids.into_iter().zip(retentions);
    let Some((nobody, _)) = ids.next() else {
        return Err(Error::Config("the store has registered no handler".to_owned()));
    };
    let outbox = match facts.iter().any(|handler| handler.stages) {
        true => Some(store.register_outbox(consumer).await?),
        false => None,
    };
    let has_processed = |name: &str| histories.iter().any(|known| known.handler == name);
    let route = |(((id, retention), external), handler): (((_, _), _), &Arc<dyn Registered<S>>)| Route {
        id,
        retention,
        meters: Meters::new(consumer, handler.facts().name),
        timeout: handler.facts().limits.timeout.unwrap_or(settings.handler_timeout),
        retry: handler.facts().limits.retry.unwrap_or(settings.retry),
        is_unclaimed: handler.facts().is_natural && settings.is_unordered(),
        is_local_only: handler.facts().limits.is_local_only,
        external,
        history: OnceCell::new_with(has_processed(handler.facts().name).then_some(())),
        handler: handler.clone(),
    };
    let routes = Routes {
        routes: ids.zip(calls).zip(handlers).map(route).collect(),
        nobody,
        nobody_meters: Meters::new(consumer, ""),
        route_by: settings.route_by.clone(),
        fan_out: settings.fan_out,
    };
    Ok(Registration { routes, has_history: !histories.is_empty(), outbox })
}

/// Returns the external call of each of these registered handlers, if it makes one, with the namespace of its handler.
async fn calls<S: Store>(store: &S, ids: &[HandlerId], handlers: &[&Facts]) -> Result<Vec<Option<RouteCall>>, Error> {
    let mut calls = Vec::with_capacity(handlers.len());
    for (id, handler) in ids.iter().zip(handlers) {
        calls.push(match handler.external {
            Some(limits) => Some(RouteCall { limits, namespace: store.call_namespace(*id).await? }),
            None => None,
        });
    }
    Ok(calls)
}

/// Lets handlers have the numbers of the names that they had before.
async fn rename<S: Store>(consumer: &str, store: &S, handlers: &[&Facts]) -> Result<(), Error> {
    for handler in handlers {
        let new = handler.name;
        for old in &handler.formerly {
            if !store.rename(consumer, old, new).await.map_err(|fault| failed(consumer, fault))? {
                let Remedies { join, .. } = store.cures(consumer, old, new);
                return Err(Error::Config(format!(
                    "the handler {new:?} of {consumer:?} was {old:?} formerly, and each of these names has claims or rows \
                     of its own, so messages of one may have run again under the other. If they are one handler, let \
                     a worker with the old name run the rows that it has in the inbox, and discard its dead letters, \
                     `Inbox::list` with `Filter::new().handler({old:?})` and `Inbox::discard`. Then stop the workers \
                     of {consumer:?}, run this, which changes nothing while such rows are there, and start again: {join}. If they are two handlers, remove `formerly = {old:?}`"
                )));
            }
        }
    }
    Ok(())
}

/// Checks that no two handlers are one in the database: each would take the messages of the other for its copies.
fn apart(consumer: &str, names: &[&str], ids: &[HandlerId]) -> Result<(), Error> {
    for (place, id) in ids.iter().enumerate() {
        if let Some(other) = ids[..place].iter().position(|other| other == id) {
            let (one, other) = (names[place], names[other]);
            return Err(Error::Config(format!(
                "the handlers {one:?} and {other:?} of {consumer:?} are one in the database, because one of them formerly had the \
                 name of the other: give the other a new name, `#[idempotent(name = \"..\")]`"
            )));
        }
    }
    Ok(())
}

/// Looks for what earlier workers of the consumer have left that belongs to no handler of this one.
async fn check_histories<S: Store>(
    consumer: &str,
    store: &S,
    handlers: &[&Facts],
    settings: &Settings,
    histories: &[History],
) -> Result<(), Error> {
    let names: Vec<&str> = handlers.iter().map(|handler| handler.name).collect();
    let (mut waiting, mut checked) = (Vec::new(), Ok(()));
    if !settings.allow_unregistered_rows {
        waiting = store.waiting(consumer).await.map_err(|fault| failed(consumer, fault))?;
        waiting.iter_mut().for_each(|rows| as_ours(&mut rows.handler, &rows.formerly, &names));
        let cures = |handler: &str| store.cures(consumer, handler, "");
        checked = Unregistered { consumer, names: &names }.check(&waiting, cures);
    }
    let ours = |handler: &&Facts| Ours { name: handler.name, is_natural: handler.is_natural };
    let ours: Vec<Ours<'_>> = handlers.iter().map(ours).collect();
    for text in renamed(consumer, &ours, histories, &waiting) {
        tracing::warn!("{text}");
    }
    checked
}

fn failed(consumer: &str, fault: StoreError) -> Error {
    Error::Database { what: format!("could not register the handlers of {consumer:?}"), source: fault.into() }
}
