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
pub(crate) struct Registration<S: Store> {
    pub(crate) routes: Routes<S>,
    /// Whether this consumer has handled any message before, under any of its handlers.
    pub(super) has_history: bool,
    /// The outbox of the consumer, if a handler stages messages.
    pub(super) outbox: Option<OutboxId>,
}

/// Registers the handlers and records that a worker has them. Warns if one of them may be another one under a new name.
/// Fails if the inbox has rows that no worker would ever run.
pub(crate) async fn register<S: Store>(
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
    let ours: Vec<_> = ids.iter().zip(&facts).map(|(id, handler)| (*id, handler.is_natural)).collect();
    let remedies = |old: &str| Remedies::of(store, consumer, old, "");
    let (refused, warned) = left_by_others(&ours, &known, remedies);
    let show = store.facts().command(&["doctor"], &[]);
    warned.iter().for_each(|text| tracing::warn!(%show, "{text}"));
    if let Some(text) = refused.into_iter().next() {
        return Err(Error::Config(text));
    }
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
        for old in handler.formerly {
            if !store.rename(consumer, old, new).await.map_err(|fault| failed(consumer, fault))? {
                let Remedies { join, .. } = Remedies::of(store, consumer, old, new);
                return Err(Error::Config(format!(
                    "the handler {new:?} of {consumer:?} was {old:?} formerly, and each of these names has claims or rows \
                     of its own, so messages of one may have run again under the other. If they are one handler, let \
                     a worker with the old name run the rows that it has in the inbox, and discard its dead letters, \
                     `idem dead discard --handler {old:?} --yes`. Then stop the workers \
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

fn failed(consumer: &str, fault: StoreError) -> Error {
    Error::Database { what: format!("could not register the handlers of {consumer:?}"), source: fault.into() }
}

/// Looks for what earlier workers of the consumer have left that belongs to no handler of this one. Returns the reasons not to
/// start, and warnings. `ours`: the handlers of this worker, and whether they are natural, and so need no claims.
///
/// Rows of a handler that no worker has had for a day will possibly never run, so this worker must not start. Otherwise the
/// handler belongs to another worker, or to a release that was rolled back, and its rows only cause a warning.
///
/// Claims cause a warning if a handler of this worker has no history and needs claims: it may be the other one under a new
/// name. It is no error, since handlers are also removed, added, and divided among workers. Claims that were pruned do not
/// count: a copy that old is new under the old name, too. So a handler that was removed causes no warning after its retention.
fn left_by_others(
    ours: &[(HandlerId, bool)],
    known: &[KnownHandler],
    remedies: impl Fn(&str) -> Remedies,
) -> (Vec<String>, Vec<String>) {
    let has_history = |id: HandlerId| known.iter().any(|known| known.has_processed && known.id == id);
    let has_new = ours.iter().any(|(id, is_natural)| !is_natural && !has_history(*id));
    let (mut refused, mut warned) = (Vec::new(), Vec::new());
    for old in known.iter().filter(|old| ours.iter().all(|(id, _)| *id != old.id)) {
        // The empty name stands for no handler, and every worker has it.
        if old.has_rows && !old.name.is_empty() {
            let text = rows_of_another(old, &remedies(&old.name));
            if is_gone(old) { refused.push(text) } else { warned.push(text) }
        } else if old.has_claims && has_new {
            warned.push(claims_of_another(old));
        }
    }
    (refused, warned)
}

/// Returns whether no worker has had the handler for a day.
pub(super) fn is_gone(known: &KnownHandler) -> bool {
    known.seen > SEEN_RECENTLY
}

/// The text about rows of a handler that this worker does not have.
pub(super) fn rows_of_another(known: &KnownHandler, remedies: &Remedies) -> String {
    let (KnownHandler { consumer, name, .. }, Remedies { part, dead_letter, .. }) = (known, remedies);
    let ago = ago(known.seen);
    let seen = match is_gone(known) {
        true => format!("which no worker has had for {ago}: the rows will not run"),
        false => format!("which a worker had {ago} ago: they wait for that one"),
    };
    format!(
        "the inbox has rows of {consumer:?} for the handler {name:?}, which this worker does not have, and {seen}. If a \
         release was rolled back, its next start runs those that are scheduled. If the handler has another name now, give it \
         the old one too, `#[idempotent(formerly = {name:?})]`. If another service or worker has the handler, give each \
         its own consumer name, stop its workers, and move the handler with its claims: {part}. If the rows are not needed, \
         turn the scheduled ones into dead letters: {dead_letter}; then discard them, \
         `idem dead discard --handler {name:?} --yes`. To keep dead letters of a handler that is gone, move it in \
         the same way to a consumer name that no worker has"
    )
}

/// The text about claims of a handler that this worker does not have. It names none of this worker's handlers: any of them may
/// be that one.
fn claims_of_another(KnownHandler { consumer, name, seen, .. }: &KnownHandler) -> String {
    format!(
        "{consumer:?} has claims of the handler {name:?}, which this worker does not have and which a worker had {} ago. \
         If a handler of this worker is that one under another name, its messages count as new: one that was processed runs \
         again if it is delivered again. Then stop the worker before it processes a message, and give the \
         handler its old name, `#[idempotent(formerly = {name:?})]`. If the handler was removed or belongs to another \
         worker, no action is needed",
        ago(*seen),
    )
}

/// Formats a duration, from two minutes on without its seconds.
fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    crate::age::shown(Duration::from_secs(if seconds < 120 { seconds } else { seconds / 60 * 60 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remedies(handler: &str) -> Remedies {
        let remedy = |what| format!("{what} {handler}");
        Remedies { part: remedy("PART"), dead_letter: remedy("BURY"), ..Remedies::default() }
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

    /// Of a worker with two handlers.
    fn left(known: &[KnownHandler]) -> (Vec<String>, Vec<String>) {
        left_by_others(&[(id("orders"), false), (id("invoices"), false)], known, remedies)
    }

    const LATE: Duration = SEEN_RECENTLY.saturating_add(Duration::from_secs(1));

    #[test]
    fn a_handler_seen_within_a_day_is_a_warning_with_each_remedy() {
        let rows = [waiting("refunds", SEEN_RECENTLY), waiting("orders", LATE), waiting("", LATE)];
        let (refused, warned) = left(&rows);
        let ([], [text]) = (&refused[..], &warned[..]) else { panic!("{refused:?} {warned:?}") };
        for part in [
            "\"billing\"",
            "\"refunds\"",
            "1 day ago",
            "rolled back",
            "formerly = \"refunds\"",
            "PART refunds",
            "BURY refunds",
            "keep dead letters",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
    }

    #[test]
    fn a_handler_not_seen_for_a_day_is_refused_with_each_remedy() {
        let rows = [waiting("gone", LATE), waiting("refunds", Duration::ZERO)];
        let (refused, warned) = left(&rows);
        let ([refused], [_]) = (&refused[..], &warned[..]) else { panic!("{refused:?} {warned:?}") };
        for part in ["\"gone\"", "no worker has had for 1 day", "formerly = \"gone\"", "PART gone", "BURY gone"] {
            assert!(refused.contains(part), "{part:?} is not in {refused:?}");
        }
    }

    fn history(handler: &str, has_claims: bool) -> KnownHandler {
        KnownHandler { has_claims, has_processed: true, ..known(handler, Duration::from_secs(180)) }
    }

    #[test]
    fn claims_of_a_handler_that_is_gone_are_a_warning_that_names_no_other_handler() {
        let (refused, warned) = left(&[history("orders", true), history("refunds", true)]);
        let ([], [text]) = (&refused[..], &warned[..]) else { panic!("{refused:?} {warned:?}") };
        for part in ["\"billing\"", "\"refunds\"", "3m ago", "formerly = \"refunds\"", "count as new"] {
            assert!(text.contains(part), "{part:?} is not in {text:?}");
        }
        assert!(!text.contains("invoices"), "{text}");
    }

    #[test]
    fn a_natural_handler_needs_no_claims_of_another_one() {
        let (ours, known) = ([(id("orders"), false), (id("invoices"), true)], ["orders", "refunds"]);
        let left = left_by_others(&ours, &known.map(|name| history(name, true)), remedies);
        assert_eq!(left, (Vec::new(), Vec::new()));
    }

    #[test]
    fn nothing_is_reported_without_a_new_name_or_a_missing_one() {
        let all = ["orders", "invoices", "refunds"].map(|name| history(name, true));
        let cases: [&[KnownHandler]; 3] = [&all, &all[..1], &[history("refunds", false)]];
        for known in cases {
            assert_eq!(left(known), (Vec::new(), Vec::new()), "{known:?}");
        }
        let (refused, warned) = left(&[KnownHandler { has_rows: true, ..history("refunds", true) }]);
        let ([], [text]) = (&refused[..], &warned[..]) else { panic!("{refused:?} {warned:?}") };
        assert!(text.contains("has rows") && !text.contains("count as new"), "{text}");
    }
}
