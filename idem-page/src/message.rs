//! One message: what happened to it, what it carries, and what can be done with it.

use axum::http::StatusCode;
use idem_core::operator::{May, Pretty, Shown, is_secret};
use idem_core::{Delivery, Store};
use maud::{Markup, html};

use crate::change::buttons;
use crate::guard::At;
use crate::layout::facts;
use crate::lists::changed;
use crate::text::{handler, number, short};
use crate::visit::{Failure, Fields, View, Visit};

/// How much of a payload, an answer or an error is shown, in bytes of HTML.
const CONTENT: usize = 10 * 1024;
/// How many headers and earlier changes are shown.
const HEADERS: usize = 30;
const CHANGES: usize = 10;

pub(crate) async fn view<S: Store>(visit: &Visit<S>, id: &str) -> Result<View, Failure> {
    let (at, payloads) = (&visit.at, visit.page.payloads);
    let id = id.parse().map_err(|_| Failure::asked("the id of a message is a number"))?;
    let gone = format!("there is no message #{id} in the inbox: it was processed or discarded");
    let gone = || Failure(StatusCode::NOT_FOUND, gone);
    let shown = visit.operator().show(id).await?.ok_or_else(gone)?;
    let (row, delivery) = (&shown.row, &shown.row.delivery);
    let (name, key) = (handler(&shown.consumer, &row.handler), &row.identity.key);
    let asked = Fields::default().with("consumer", &shown.consumer).with("handler", &row.handler).with("key", key);
    let body = html! {
        @if !row.error.is_empty() {
            pre.error tabindex="0" role="region" aria-label="Error" { (short(&row.error, CONTENT / 2)) }
        }
        @if at.actor.is_some() { (actions(at, &shown)) }
        (facts(at, row))
        @if !key.as_bytes().is_empty() { p { a href=(asked.link(&at.link("/why"))) { "Why?" } } }
        (content("Payload", delivery.payload(), payloads))
        (headers(delivery, payloads))
        @if let Some(answer) = &row.answer { (content("Answer of its call", answer.as_bytes(), payloads)) }
        (changed(at, shown.operations.get(..CHANGES).unwrap_or(&shown.operations)))
    };
    Ok((format!("Message #{id} of {name}"), body))
}

/// Bytes for people, if payloads are shown.
fn content(title: &str, bytes: &[u8], payloads: bool) -> Markup {
    let (pretty, is_cut) = Pretty::of(bytes, CONTENT);
    let text = short(pretty.text(), CONTENT);
    html! {
        section {
            h2 { (title) " " small { (number(bytes.len() as u64)) " bytes" } }
            @if payloads {
                pre tabindex="0" role="region" aria-label=(title) { (text) }
                @if is_cut || text.len() < pretty.text().len() {
                    p.note { "This is its beginning: " code { "idem dead show ID --raw" } " prints all of it." }
                }
            } @else {
                p.none { "Payloads are hidden: `--payloads`, or `.payloads()` of the service, shows them." }
            }
        }
    }
}

fn headers(delivery: &Delivery, payloads: bool) -> Markup {
    let headers = delivery.headers();
    html! {
        details {
            summary { "Headers (" (headers.len()) ")" }
            dl {
                @for (name, value) in headers.iter().take(HEADERS) {
                    @let is_shown = payloads && !is_secret(name);
                    @let value = if is_shown { String::from_utf8_lossy(value) } else { "hidden".into() };
                    div { dt { (short(name, 48)) } dd { (short(&value, 160)) } }
                }
            }
        }
    }
}

/// The changes that its state allows. Those that take more than a click are commands.
fn actions(at: &At, Shown { row, may, .. }: &Shown) -> Markup {
    html! {
        (buttons(at, &Fields::default().with("id", row.id), may))
        @if may.contains(&May::As) { p { code { "idem dead replay " (row.id) " --as KEY" } } }
        @if may.contains(&May::Resolve) { p { code { "idem calls resolve " (row.id) } } }
    }
}
