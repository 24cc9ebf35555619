//! The first view: what needs a person, the causes of dead letters, the consumers and the outboxes.

use idem_core::Store;
use idem_core::operator::{ConsumerStatus, Count, Counted, Filter, OutboxStatus, Status, ago};
use maud::{Markup, html};

use crate::dead::causes;
use crate::guard::At;
use crate::layout::table;
use crate::text::{past, rates, short, spark};
use crate::visit::{Failure, Fields, View, Visit};

pub(crate) async fn view<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let (at, operator) = (&visit.at, visit.operator());
    let status = operator.status(Count::AtLeast).await?;
    let groups = operator.groups(&Filter::new(), Count::AtLeast).await?;
    let body = html! {
        (needed(&status))
        (causes(at, &Fields::default(), &groups))
        (consumers(at, &status.consumers))
        (outboxes(at, &status.outboxes))
    };
    Ok(("Overview".to_owned(), body))
}

/// What is wrong, each with the command that shows more.
fn needed(status: &Status) -> Markup {
    let needs = status.needs();
    html! {
        @if needs.is_empty() { p.verdict.ok { strong { "Nothing needs a person." } } }
        @else {
            section.verdict.bad {
                h2 { "Needs a person" }
                ul { @for need in &needs { li { (short(&need.what, 400)) ": " code { (short(&need.remedy, 300)) } } } }
            }
        }
    }
}

fn consumers(at: &At, consumers: &[ConsumerStatus]) -> Markup {
    let columns = ["consumer", "workers", "hour", "minute", "scheduled", "oldest due", "dead", "calling", "unresolved"];
    let rows = consumers.iter().map(|status| {
        let [processed, _, failed] = &status.series;
        let link = |path| Fields::default().with("consumer", &status.consumer).link(&at.link(path));
        vec![
            html! { (short(&status.consumer, 64)) },
            workers(status),
            html! { (spark(processed, failed)) " " (rates(&status.hour)) },
            rates(&status.minute),
            html! { (status.scheduled) },
            html! { @if let Some(due) = status.oldest_due { (ago(due)) } },
            counted(status.dead, &link("/dead")),
            html! { (status.calling) },
            counted(status.unresolved, &link("/calls")),
        ]
    });
    table("Consumers", &columns, rows)
}

/// A number that leads to its rows. A zero is pale: nobody has to read it.
fn counted(number: Counted, link: &str) -> Markup {
    html! { @if number.rows > 0 { a href=(link) { (number) } } @else { span.none { "0" } } }
}

/// How many workers live, and what keeps them from working.
fn workers(status: &ConsumerStatus) -> Markup {
    html! {
        @if status.alive > 0 { (status.alive) } @else { strong.bad { "none" } }
        @if let Some(why) = &status.paused { " " small.warn { "paused: " (short(why, 100)) } }
        @if status.blocked > 0 { " " small.warn { (status.blocked) " blocked" } }
    }
}

pub(crate) fn outboxes(at: &At, outboxes: &[OutboxStatus]) -> Markup {
    let columns = ["outbox", "waiting", "oldest", "dead", "relay seen"];
    let rows = outboxes.iter().map(|status| {
        let link = Fields::default().with("name", &status.name).link(&at.link("/outbox"));
        vec![
            html! { (short(&status.name, 64)) },
            html! { (status.waiting) },
            html! { @if let Some(age) = status.oldest { (ago(age)) } },
            counted(status.dead, &link),
            html! { @if let Some(seen) = status.relay_seen { (past(seen)) } @else { strong.bad { "never" } } },
        ]
    });
    table("Outboxes", &columns, rows)
}
