//! The dead letters by cause, those that match a filter, and what can be done with all of them.

use idem_core::Store;
use idem_core::operator::{Count, Groups, May, Page};
use maud::{Markup, html};

use crate::change::buttons;
use crate::guard::At;
use crate::layout::{ROWS, field, listed, older, table};
use crate::text::{handler, messages, short, when};
use crate::visit::{FILTER, Failure, Fields, View, Visit};

const COLUMNS: [&str; 7] = ["id", "error", "handler", "key", "reason", "attempts", "died_at"];

/// What a page lets do with all messages that match a filter. Of those for which it is wrong, nothing is changed.
const ALL: [May; 3] = [May::Replay, May::Force, May::Discard];

/// How many causes are listed.
const GROUPS: usize = 10;

pub(crate) async fn view<S: Store>(visit: &Visit<S>) -> Result<View, Failure> {
    let (at, fields, selected) = (&visit.at, &visit.fields, visit.fields.filter());
    let (operator, filter) = visit.filter().await?;
    let groups = operator.groups(&filter, Count::AtLeast).await?;
    let found = operator.list(&filter, page(fields)?).await?;
    let forces = groups.groups.iter().any(|group| group.reason.needs_force());
    let may: Vec<May> = ALL.into_iter().filter(|may| *may != May::Force || forces).collect();
    let body = html! {
        form.filter action=(at.link("/dead")) {
            @for name in FILTER { @if name != "payload" || visit.page.payloads { (field(fields, name, name)) } }
            button.quiet { "Filter" }
        }
        (causes(at, &selected, &groups))
        @if at.actor.is_some() && !found.rows.is_empty() {
            @if selected.iter().next().is_some() { p.note { "All that match:" } (buttons(at, &selected, &may)) }
            @else { p.note { "A cause or a filter leads to the messages that can be replayed or discarded together." } }
        }
        (listed(at, "Messages, by their ids", &COLUMNS, &found.rows))
        @if found.unsearched > 0 { p.note { (messages(found.unsearched)) " above 1 MiB were not searched." } }
        (older(at, fields, found.next))
    };
    Ok(("Dead letters".to_owned(), body))
}

/// The page of a list that the fields ask for.
pub(crate) fn page(fields: &Fields) -> Result<Page, Failure> {
    let page = Page::new(ROWS as u32).without_payloads();
    Ok(fields.read("before")?.map_or(page, |id| page.before(id)))
}

/// The causes of dead letters, the most frequent first. Each leads to those of its messages that the fields select, where they can be
/// replayed at once.
pub(crate) fn causes(at: &At, selected: &Fields, groups: &Groups) -> Markup {
    let columns = ["cause", "messages", "handler", "reason", "last", "first"];
    let rows = groups.groups.iter().take(GROUPS).map(|group| {
        let filter = selected.clone().with("consumer", &group.consumer).with("handler", &group.handler);
        let filter = filter.with("reason", group.reason.as_str());
        // The text of the person may select fewer.
        let filter = if selected.get("error").is_some() { filter } else { filter.with("error", &group.error_filter) };
        let line = if group.line.is_empty() { "without an error" } else { &group.line };
        vec![
            html! { a href=(filter.link(&at.link("/dead"))) { (short(line, 200)) } },
            html! { (group.count) },
            html! { (handler(&group.consumer, &group.handler)) },
            html! { (group.reason.as_str()) },
            when(group.last),
            when(group.first),
        ]
    });
    html! {
        (table("Dead letters by cause", &columns, rows))
        @if groups.groups.len() > GROUPS { p.note { "There are more causes: a filter finds them." } }
        @if groups.looked.at_least { p.note { "Of the newest dead letters: there are " (groups.looked) "." } }
    }
}
