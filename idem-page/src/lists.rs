//! The lists that only show: outboxes, calls in doubt, workers, and what people have done.

use idem_core::Store;
use idem_core::operator::{Count, Operation};
use maud::{Markup, html};

use crate::dead::page;
use crate::guard::At;
use crate::layout::{ROWS, listed, older};
use crate::overview::outboxes;
use crate::visit::{Failure, View, Visit};

/// The place of the last row of a page that is full: there may be others behind it.
const LAST: usize = ROWS - 1;

/// The outboxes, or the messages of one that the broker refuses.
pub(crate) async fn outbox<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let (at, fields, operator) = (&visit.at, &visit.fields, visit.operator());
    let Some(name) = fields.get("name") else {
        return Ok(("Outbox".to_owned(), outboxes(at, &operator.outboxes(Count::AtLeast).await?)));
    };
    let rows = operator.outgoing(name, false, page(fields)?).await?;
    let columns = ["id", "to", "key", "attempts", "died_at", "error"];
    let body = html! {
        (listed(at, "Messages that the broker refuses", &columns, &rows))
        p.note { "A relay publishes them again after " code { "idem outbox replay" } "." }
        (older(at, fields, rows.get(LAST).map(|row| row.id)))
    };
    Ok((format!("Outbox {name}"), body))
}

pub(crate) async fn calls<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let (at, fields) = (&visit.at, &visit.fields);
    let calls = visit.operator().calls(page(fields)?).await?;
    let columns = ["id", "handler", "key", "state", "reason", "provider_key", "called_at", "error"];
    let body = html! {
        (listed(at, "External calls that may have had an effect", &columns, &calls))
        p.note { "After a look at the provider, " code { "idem calls resolve" } " says what became of an unresolved one." }
        (older(at, fields, calls.get(LAST).map(|row| row.id)))
    };
    Ok(("Calls in doubt".to_owned(), body))
}

pub(crate) async fn workers<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let workers = visit.operator().workers().await?;
    let columns = ["name", "kind", "seen", "hour", "paused", "blocked", "host", "pid", "version", "started_at"];
    Ok(("Workers".to_owned(), listed(&visit.at, "Workers and relays of the last day", &columns, &workers)))
}

pub(crate) async fn operations<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let (at, fields) = (&visit.at, &visit.fields);
    let changes = visit.operator().operations(fields.read("command")?, page(fields)?).await?;
    let body = html! {
        (changed(at, &changes))
        (older(at, fields, changes.get(LAST).map(|change| change.id)))
    };
    Ok(("Operations".to_owned(), body))
}

/// What people did, and what each message was like before.
pub(crate) fn changed(at: &At, changes: &[Operation]) -> Markup {
    let columns = ["at", "actor", "role", "action", "handler", "outbox", "row", "key", "reason", "attempts", "error"];
    listed(at, "What people did, newest first", &columns, changes)
}
