//! The registration of a worker in its database, before it takes any delivery.
//!
//! Also here: the handlers that a worker does not have. Their rows in the inbox would never run, and one of them may be another
//! under a new name, whose messages would be new.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::registry::{Facts, Registered};
use crate::routes::{Route, RouteCall, Routes};
use crate::runtime::Settings;
use crate::store::{HandlerId, HandlerMark, KnownHandler, OutboxId, Remedies, SEEN_RECENTLY, StoreError};
use crate::telemetry::Meters;
use crate::{Error, Store};

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
    let known = store.handlers(Some(consumer)).await.map_err(failed)?;
    check_known(consumer, store, (ids, &facts), settings, &known)?;
    let outbox = match facts.iter().any(|handler| handler.stages) {
        true => Some(store.register_outbox(consumer).await?),
        false => None,
    };
    let route = |(id, handler): (&HandlerId, &Arc<dyn Registered<S>>)| route(consumer, settings, *id, handler, &known);
    let routes = Routes {
        routes: ids.iter().zip(handlers).map(route).collect::<Result<_, _>>()?,
        nobody: *nobody,
        nobody_meters: Meters::new(consumer, ""),
        route_by: settings.route_by.clone(),
        fan_out: settings.fan_out,
    };
    Ok(Registration { routes, has_history: known.iter().any(|known| known.has_processed), outbox })
}

/// Returns a handler with its limits, and with what the database knows of it.
fn route<S: Store>(
    consumer: &str,
    settings: &Settings,
    id: HandlerId,
    handler: &Arc<dyn Registered<S>>,
    known: &[KnownHandler],
) -> Result<Route<S>, Error> {
    let facts = handler.facts();
    let of = known.iter().find(|known| known.id == id);
    let external = match (facts.external, of.and_then(|known| known.namespace)) {
        (None, _) => None,
        (Some(limits), Some(namespace)) => Some(RouteCall { limits, namespace }),
        (Some(_), None) => {
            let hidden = format!("the table `call_namespaces` hides the row of the handler {:?}", facts.name);
            return Err(Error::database("could not register a namespace of calls", hidden));
        }
    };
    Ok(Route {
        id,
        retention: of.and_then(|known| known.retention),
        meters: Meters::new(consumer, facts.name),
        timeout: facts.limits.timeout.unwrap_or(settings.handler_timeout),
        retry: facts.limits.retry.unwrap_or(settings.retry),
        is_unclaimed: facts.is_natural && settings.is_unordered(),
        is_local_only: facts.limits.is_local_only,
        external,
        history: OnceCell::new_with(of.is_some_and(|known| known.has_processed).then_some(())),
        handler: handler.clone(),
    })
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
    (ids, handlers): (&[HandlerId], &[&Facts]),
    settings: &Settings,
    known: &[KnownHandler],
) -> Result<(), Error> {
    let reports_rows = !settings.allow_unregistered_rows;
    let mut refused = Ok(());
    if reports_rows {
        for (text, recently) in rows_of_others(consumer, ids, known, |old| Remedies::of(store, consumer, old, "")) {
            match recently {
                true => tracing::warn!("{text}"),
                false => refused = refused.and(Err(Error::Config(text))),
            }
        }
    }
    let ours: Vec<_> = ids.iter().copied().zip(handlers.iter().map(|handler| handler.is_natural)).collect();
    for text in renamed(consumer, &ours, known, reports_rows) {
        tracing::warn!("{text}");
    }
    refused
}

fn failed(consumer: &str, fault: StoreError) -> Error {
    Error::Database { what: format!("could not register the handlers of {consumer:?}"), source: fault.into() }
}

/// Returns a text for each handler with rows that this worker does not have, and whether a worker has had it within a day. If
/// none has, possibly no worker will ever run the rows, and this one must not start. Otherwise the handler belongs to another
/// worker, or to a release that was rolled back: those rows only cause a warning. `ours`: the handlers of this worker.
pub(super) fn rows_of_others(
    consumer: &str,
    ours: &[HandlerId],
    known: &[KnownHandler],
    remedies: impl Fn(&str) -> Remedies,
) -> Vec<(String, bool)> {
    // The empty name stands for no handler, and every worker has it.
    let strange = |known: &&KnownHandler| known.has_rows && !known.name.is_empty() && !ours.contains(&known.id);
    let text = |KnownHandler { name: handler, seen, .. }: &KnownHandler| {
        let Remedies { part, dead_letter, .. } = remedies(handler);
        let recently = *seen <= SEEN_RECENTLY;
        let ago = ago(*seen);
        let seen = match recently {
            true => format!("and which a worker had {ago} ago: they wait for that one"),
            false => format!("and which no worker has had for {ago}: the rows will not run"),
        };
        let text = format!(
            "the inbox has rows of {consumer:?} for the handler {handler:?}, which this worker does not have, {seen}. If a \
             release was rolled back, its next start runs those that are scheduled. If the handler has another name now, give it \
             the old one too, `#[idempotent(formerly = {handler:?})]`. If another service or worker has the handler, give each \
             its own consumer name, stop its workers, and move the handler with its claims: {part}. If the rows are not needed, \
             turn the scheduled ones into dead letters: {dead_letter}; then discard them, `Inbox::list` with \
             `Filter::new().handler({handler:?})` and `Inbox::discard`. To leave them where they are, start with \
             `.allow_unregistered_rows()`"
        );
        (text, recently)
    };
    known.iter().filter(strange).map(text).collect()
}

/// Formats a duration, from two minutes on without its seconds.
fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    crate::age::shown(Duration::from_secs(if seconds < 120 { seconds } else { seconds / 60 * 60 }))
}

/// Returns a warning for each handler that this worker lacks and that has claims, if a handler of this worker has no
/// history and needs claims. It is no error, and names none of this worker's handlers: handlers are also
/// removed, added, and divided among workers. `ours`: the handlers of this worker, and whether they are natural, and so need no
/// claims. `reports_rows`: those with rows have been reported.
///
/// Claims that were pruned do not count: a copy that old is new under the old name, too. So a handler that was removed
/// causes no warning after its retention.
fn renamed(consumer: &str, ours: &[(HandlerId, bool)], known: &[KnownHandler], reports_rows: bool) -> Vec<String> {
    let has_history = |id: HandlerId| known.iter().any(|known| known.has_processed && known.id == id);
    if ours.iter().all(|(id, is_natural)| *is_natural || has_history(*id)) {
        return Vec::new();
    }
    let is_ours = |old: &KnownHandler| ours.iter().any(|(id, _)| *id == old.id);
    let is_reported = |old: &KnownHandler| reports_rows && old.has_rows;
    let missing = known.iter().filter(|old| old.has_claims && !is_ours(old) && !is_reported(old));
    let text = |KnownHandler { name: handler, seen, .. }: &KnownHandler| {
        format!(
            "{consumer:?} has claims of the handler {handler:?}, which this worker does not have and which a worker had {} ago. \
             If a handler of this worker is that one under another name, its messages count as new: one that was processed runs \
             again if it is delivered again. Then stop the worker before it processes a message, and give the \
             handler its old name, `#[idempotent(formerly = {handler:?})]`. If the handler was removed or belongs to another \
             worker, no action is needed",
            ago(*seen),
        )
    };
    missing.map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cures(handler: &str) -> Remedies {
        let cure = |what| format!("{what} {handler}");
        Remedies { part: cure("PART"), dead_letter: cure("BURY"), ..Remedies::default() }
    }

    /// The names of these tests differ in their length.
    fn id(name: &str) -> HandlerId {
        HandlerId(name.len() as i32)
    }

    fn known(name: &str, seen: Duration) -> KnownHandler {
        KnownHandler {
            id: id(name),
            consumer: "billing".to_owned(),
            name: name.to_owned(),
            formerly: Vec::new(),
            seen,
            retention: None,
            has_claims: false,
            has_processed: false,
            has_rows: false,
            namespace: None,
        }
    }

    fn waiting(handler: &str, seen: Duration) -> KnownHandler {
        KnownHandler { has_rows: true, ..known(handler, seen) }
    }

    fn texts(known: &[KnownHandler]) -> Vec<(String, bool)> {
        rows_of_others("billing", &[id("orders"), id("invoices")], known, cures)
    }

    const LATE: Duration = SEEN_RECENTLY.saturating_add(Duration::from_secs(1));

    #[test]
    fn a_handler_seen_within_a_day_is_a_warning_with_each_remedy() {
        let rows = [waiting("refunds", SEEN_RECENTLY), waiting("orders", LATE), waiting("", LATE)];
        let texts = texts(&rows);
        let [(text, true)] = &texts[..] else { panic!("{texts:?}") };
        for part in [
            "\"billing\"",
            "\"refunds\"",
            "1 day ago",
            "rolled back",
            "formerly = \"refunds\"",
            "PART refunds",
            "BURY refunds",
            "allow_unregistered_rows",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_handler_not_seen_for_a_day_is_refused_with_each_remedy() {
        let rows = [waiting("gone", LATE), waiting("refunds", Duration::ZERO)];
        let texts = texts(&rows);
        let [(refused, false), (_, true)] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"gone\"", "no worker has had for 1 day", "formerly = \"gone\"", "PART gone", "BURY gone"] {
            assert!(refused.contains(part), "{part:?} is not in {refused:?}");
        }
    }

    fn history(handler: &str, has_claims: bool) -> KnownHandler {
        KnownHandler { has_claims, has_processed: true, ..known(handler, Duration::from_secs(180)) }
    }

    fn ours(name: &str) -> (HandlerId, bool) {
        (id(name), false)
    }

    #[test]
    fn claims_of_a_handler_that_is_gone_are_a_warning_that_names_no_other_handler() {
        let ours = [ours("orders"), ours("invoices")];
        let texts = renamed("billing", &ours, &[history("orders", true), history("refunds", true)], true);
        let [text] = &texts[..] else { panic!("{texts:?}") };
        for part in ["\"billing\"", "\"refunds\"", "3m ago", "formerly = \"refunds\"", "count as new"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("invoices"), "{text}");
    }

    #[test]
    fn a_natural_handler_needs_no_claims_of_another_one() {
        let ours = [ours("orders"), (id("invoices"), true)];
        let texts = renamed("billing", &ours, &[history("orders", true), history("refunds", true)], true);
        assert_eq!(texts, Vec::<String>::new());
    }

    #[test]
    fn nothing_is_reported_without_a_new_name_or_a_missing_one() {
        let all = ["orders", "invoices", "refunds"].map(|name| history(name, true));
        let reported = KnownHandler { has_rows: true, ..history("refunds", true) };
        let cases: [&[KnownHandler]; 4] = [&all, &all[..1], &[history("refunds", false)], &[reported]];
        for known in cases {
            let texts = renamed("billing", &[ours("orders"), ours("invoices")], known, true);
            assert_eq!(texts, Vec::<String>::new(), "{known:?}");
        }
    }
}
