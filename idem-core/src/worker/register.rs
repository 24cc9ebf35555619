//! The registration of a worker in its database, before it takes any delivery.

use std::sync::Arc;

use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::registry::{Facts, Registered};
use crate::routes::{Route, RouteCall, Routes};
use crate::runtime::Settings;
use crate::store::{HandlerId, HandlerMark, KnownHandler, OutboxId, Remedies, StoreError, as_ours};
use crate::telemetry::Meters;
use crate::{Error, Store};

use super::unregistered::{renamed, rows_of_others};

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
    // Recorded before any check can fail: if two workers would each refuse because of the other's rows, the one that
    // starts second succeeds.
    store.mark(&ids, HandlerMark::Seen).await.map_err(failed)?;
    let [nobody, ids @ ..] = &ids[..] else {
        return Err(Error::Config("the store has registered no handler".to_owned()));
    };
    let calling = ids.iter().zip(&facts).filter(|(_, handler)| handler.external.is_some());
    let calling: Vec<HandlerId> = calling.map(|(id, _)| *id).collect();
    if !calling.is_empty() {
        store.mark(&calling, HandlerMark::Calls).await.map_err(failed)?;
    }
    let mut known = store.handlers(Some(consumer)).await.map_err(failed)?;
    known.iter_mut().for_each(|known| as_ours(known, &names));
    check_known(consumer, store, &facts, settings, &known)?;
    let of = |id: &HandlerId| known.iter().find(|known| known.id == *id);
    let outbox = match facts.iter().any(|handler| handler.stages) {
        true => Some(store.register_outbox(consumer).await?),
        false => None,
    };
    let route = |(id, handler): (&HandlerId, &Arc<dyn Registered<S>>)| {
        Ok(Route {
            id: *id,
            retention: of(id).and_then(|known| known.retention),
            meters: Meters::new(consumer, handler.facts().name),
            timeout: handler.facts().limits.timeout.unwrap_or(settings.handler_timeout),
            retry: handler.facts().limits.retry.unwrap_or(settings.retry),
            is_unclaimed: handler.facts().is_natural && settings.is_unordered(),
            is_local_only: handler.facts().limits.is_local_only,
            external: call(handler.facts(), of(id).and_then(|known| known.namespace))?,
            history: OnceCell::new_with(of(id).is_some_and(|known| known.has_processed).then_some(())),
            handler: handler.clone(),
        })
    };
    let routes = Routes {
        routes: ids.iter().zip(handlers).map(route).collect::<Result<_, Error>>()?,
        nobody: *nobody,
        nobody_meters: Meters::new(consumer, ""),
        route_by: settings.route_by.clone(),
        fan_out: settings.fan_out,
    };
    Ok(Registration { routes, has_history: known.iter().any(|known| known.has_processed), outbox })
}

/// Returns the external call of a handler, if it makes one.
fn call(handler: &Facts, namespace: Option<Uuid>) -> Result<Option<RouteCall>, Error> {
    let Some(limits) = handler.external else { return Ok(None) };
    let hidden = || format!("the table `call_namespaces` hides the row of the handler {:?}", handler.name);
    let namespace = namespace.ok_or_else(|| Error::database("could not register a namespace of calls", hidden()))?;
    Ok(Some(RouteCall { limits, namespace }))
}

/// Lets handlers have the numbers of the names that they had before.
async fn rename<S: Store>(consumer: &str, store: &S, handlers: &[&Facts]) -> Result<(), Error> {
    for handler in handlers {
        let new = handler.name;
        for old in &handler.formerly {
            if !store.rename(consumer, old, new).await.map_err(|fault| failed(consumer, fault))? {
                let Remedies { join, .. } = Remedies::of(store, consumer, old, new);
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
fn check_known<S: Store>(
    consumer: &str,
    store: &S,
    handlers: &[&Facts],
    settings: &Settings,
    known: &[KnownHandler],
) -> Result<(), Error> {
    let names: Vec<&str> = handlers.iter().map(|handler| handler.name).collect();
    let reports_rows = !settings.allow_unregistered_rows;
    let mut refused = Ok(());
    if reports_rows {
        for (text, recently) in rows_of_others(consumer, &names, known, |old| Remedies::of(store, consumer, old, "")) {
            match recently {
                true => tracing::warn!("{text}"),
                false => refused = refused.and(Err(Error::Config(text))),
            }
        }
    }
    let ours: Vec<_> = handlers.iter().map(|handler| (handler.name, handler.is_natural)).collect();
    for text in renamed(consumer, &ours, known, reports_rows) {
        tracing::warn!("{text}");
    }
    refused
}

fn failed(consumer: &str, fault: StoreError) -> Error {
    Error::Database { what: format!("could not register the handlers of {consumer:?}"), source: fault.into() }
}
