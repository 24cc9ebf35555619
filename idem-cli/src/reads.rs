//! What goes on: workers, dead letters and their causes, what a delivery would be, what operators did, and what is wrong.

use std::fs;
use std::io::{IsTerminal, stdout};
use std::iter;

use idem_core::Store;
use idem_core::operator::{Asked, Count, Filter, Finding, Page};

use crate::args::{Filters, Globals, List, Paged, Why};
use crate::connect::{Session, Target};
use crate::output::{Exit, Failure, facts, lines};

/// The exit code of an answer that a person has to act on.
const PERSON: u8 = 10;

// The columns of tables: the members of rows.
const CONSUMERS: &[&str] =
    &["consumer", "alive", "minute", "hour", "scheduled", "oldest_due", "dead", "calling", "blocked", "blocked_for"];
pub(crate) const OUTBOXES: &[&str] = &["name", "waiting", "oldest", "dead", "relay_seen"];
pub(crate) const WORKERS: &[&str] =
    &["name", "kind", "host", "pid", "version", "started_at", "seen", "alive", "minute"];
const DEAD: &[&str] = &["id", "handler", "key", "reason", "died_at", "attempts", "error"];
const SCHEDULED: &[&str] = &["id", "handler", "key", "state", "run_at", "locked_until", "attempts", "error"];
const GROUPS: &[&str] = &["count", "consumer/handler", "reason", "first", "last", "example", "error_filter", "line"];
const OUTGOING: &[&str] = &["id", "to", "key", "created_at", "attempts", "died_at", "error"];
pub(crate) const CALLS: &[&str] = &["id", "handler", "key", "state", "provider_key", "called_at", "error"];
const OPERATIONS: &[&str] =
    &["at", "action", "actor", "role", "consumer/handler", "outbox", "key", "row", "reason", "attempts", "error"];

pub(crate) async fn status<S: Store>(on: &Session<S>, exact: bool) -> Exit {
    let status = on.operator.status(count(exact)).await?;
    let needs = status.needs();
    let all: String = needs.iter().map(|need| lines(&format!("needs: {need}\n"))).collect();
    on.out.answer(&status, |shown| {
        let mut text = on.out.table(CONSUMERS, &shown["consumers"]) + &on.out.table(OUTBOXES, &shown["outboxes"]);
        if status.consumers.is_empty() {
            text += "no worker has been here yet\n";
        }
        text + if needs.is_empty() { "nothing needs a person" } else { all.as_str() }
    })?;
    Ok(if needs.is_empty() { 0 } else { PERSON })
}

fn count(exact: bool) -> Count {
    if exact { Count::Exact } else { Count::AtLeast }
}

pub(crate) async fn why<S: Store>(on: &Session<S>, args: Why) -> Exit {
    let mut asked = Asked::new(args.handler, args.key);
    if let Some(path) = args.payload {
        let read =
            fs::read(&path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        asked.payload = Some(read.into());
    }
    asked.published = args.published.map(|published| published.0);
    let why = on.operator.why(&asked).await?;
    on.out.answer(&why, |shown| {
        let first = iter::once(format!("delivered now, {}", why.verdict)).chain(why.hints.iter().cloned());
        let mut rest = shown.clone();
        rest.as_object_mut().map(|members| members.remove("hints"));
        first.map(|line| lines(&line) + "\n").collect::<String>() + &facts(&rest)
    })?;
    Ok(why.verdict.exit_code())
}

/// The filter of these flags, once their handler is known to exist.
pub(crate) async fn checked<S: Store>(on: &Session<S>, flags: &Filters) -> Result<Filter, Failure> {
    if let Some(name) = &flags.handler {
        on.operator.handler(name).await?;
    }
    let mut filter = Filter::new();
    filter.handler.clone_from(&flags.handler);
    filter.error.clone_from(&flags.error);
    filter.payload.clone_from(&flags.payload);
    filter.key.clone_from(&flags.key);
    (filter.reason, filter.since, filter.until) = (flags.reason, flags.since, flags.until);
    Ok(filter)
}

/// Says that nothing matches, as far as it was searched.
pub(crate) fn no_match(filter: &Filter, looked: u64, unsearched: u64) -> Failure {
    let kind = if filter.scheduled { "scheduled message" } else { "dead letter" };
    let but = if unsearched > 0 { format!("; above 1 MiB, and not searched: {unsearched}") } else { String::new() };
    Failure::none(format!("no {kind} matches: looked at {looked} rows{but}"))
}

/// Lists dead letters, or scheduled rows, newest first.
pub(crate) async fn list<S: Store>(on: &Session<S>, list: &List, scheduled: bool) -> Exit {
    let mut filter = checked(on, &list.filters).await?;
    filter.scheduled = scheduled;
    let found = on.operator.list(&filter, list.paged.page()).await?;
    let columns = if scheduled { SCHEDULED } else { DEAD };
    on.out.answer(&found, |shown| on.out.table(columns, &shown["rows"]) + &list.paged.more(found.next))?;
    if found.rows.is_empty() { Err(no_match(&filter, found.looked, found.unsearched)) } else { Ok(0) }
}

/// Groups dead letters by handler, reason and error.
pub(crate) async fn group<S: Store>(on: &Session<S>, flags: &Filters, exact: bool) -> Exit {
    let filter = checked(on, flags).await?;
    let found = on.operator.groups(&filter, count(exact)).await?;
    on.out.answer(&found, |shown| on.out.table(GROUPS, &shown["groups"]))?;
    if found.groups.is_empty() { Err(no_match(&filter, found.looked.rows, 0)) } else { Ok(0) }
}

/// Shows one row, or only its payload, byte by byte.
pub(crate) async fn show<S: Store>(on: &Session<S>, id: i64, raw: bool) -> Exit {
    if raw && stdout().is_terminal() {
        return Err(Failure::usage("the bytes of a payload could control this terminal: write them to a file"));
    }
    let shown = on.operator.show(id).await?.ok_or_else(|| {
        Failure::none(format!("there is no row #{id} (any more): it was processed or discarded, or never there"))
    })?;
    if raw { on.out.bytes(shown.row.delivery.payload()) } else { on.out.answer(&shown, facts) }
}

/// Lists the messages of an outbox that are dead, or that wait.
pub(crate) async fn outgoing<S: Store>(on: &Session<S>, name: &str, waiting: bool) -> Exit {
    let rows = on.operator.outgoing(name, waiting, Page::default()).await?;
    if rows.is_empty() && !waiting {
        on.out.answer(&rows, |_| String::new())?;
        return Err(Failure::none(format!("the outbox {name} has no dead message: --waiting lists those that wait")));
    }
    on.rows(OUTGOING, &rows, "no message waits")
}

/// Lists what operators have done.
pub(crate) async fn operations<S: Store>(on: &Session<S>, paged: &Paged) -> Exit {
    let found = on.operator.operations(None, paged.page()).await?;
    let next = found.last().filter(|_| found.len() >= paged.limit as usize).map(|last| last.id);
    on.out.answer(&found, |rows| on.out.table(OPERATIONS, rows) + &paged.more(next))?;
    if found.is_empty() { Err(Failure::none("no operator has changed anything in the last 90 days")) } else { Ok(0) }
}

/// Lists what is wrong with the database and its workers.
pub(crate) async fn doctor<S: Store>(on: &Session<S>, globals: &Globals) -> Exit {
    let refused = Target::new(globals, false)?.start_error().await;
    let findings = on.operator.doctor(refused).await?;
    on.out.answer(&findings, |_| {
        let shown = |found: &Finding| lines(&format!("{}\n  {}\n", found.what, found.remedy));
        if findings.is_empty() { "nothing was found".to_owned() } else { findings.iter().map(shown).collect() }
    })?;
    Ok(if findings.is_empty() { 0 } else { PERSON })
}
