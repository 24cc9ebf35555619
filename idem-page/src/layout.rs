//! The frame of all views, and the tables and lists that they are made of.

use std::time::{Duration, SystemTime};

use idem_core::operator::Time;
use maud::{DOCTYPE, Markup, html};
use serde::Serialize;
use serde_json::Value;

use crate::guard::At;
use crate::text::{past, short};
use crate::visit::Fields;

/// How many rows a list shows at once: with the worst texts and ten causes, a page has less than 60 KB.
pub(crate) const ROWS: usize = 40;

const STYLE: &str = concat!("/style.css?v=", env!("CARGO_PKG_VERSION"));

/// The views beside the overview, by the names of the commands.
const VIEWS: [&str; 5] = ["dead", "outbox", "calls", "workers", "operations"];

/// A whole document.
pub(crate) fn document(at: &At, fields: &Fields, title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (short(title, 100)) " - idem" }
                link rel="stylesheet" href=(at.link(STYLE));
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header {
                    nav aria-label="Views" {
                        a.brand href=(at.link("/")) { "idem" }
                        @for name in VIEWS {
                            @let is_shown = at.path.strip_prefix('/') == Some(name);
                            a href=(at.link(&format!("/{name}"))) aria-current=[is_shown.then_some("page")] { (name) }
                        }
                    }
                    // The question that people on call ask most: why a message did, or did not, run.
                    form.why action=(at.link("/why")) role="search" {
                        (field(fields, "handler", "Handler"))
                        (field(fields, "key", "Key of a message"))
                        button { "Why?" }
                    }
                }
                main id="main" tabindex="-1" { h1 { (short(title, 200)) } (body) }
                footer {
                    "As of " (Time(SystemTime::now())) ", idem " (env!("CARGO_PKG_VERSION")) ". "
                    @if let Some(actor) = &at.actor { "Changes are recorded as made by " (short(actor, 64)) "." }
                    @else { "Read-only." }
                }
            }
        }
    }
}

/// A field of a form for questions, which has the value of the question that was asked.
pub(crate) fn field(fields: &Fields, name: &str, label: &str) -> Markup {
    let value = fields.get(name).map(|text| short(text, 600));
    html! {
        // The keyboard of a phone begins with a capital letter otherwise, which no handler does.
        input name=(name) placeholder=(label) aria-label=(label) autocomplete="off" autocapitalize="none" value=[value];
    }
}

/// A table. The first cell of a row names it. On a narrow screen each row is a block, whose lines begin with the names of the
/// columns.
pub(crate) fn table(caption: &str, columns: &[&str], rows: impl ExactSizeIterator<Item = Vec<Markup>>) -> Markup {
    if rows.len() == 0 {
        return html! { section { h2 { (caption) } p.none { "None." } } };
    }
    html! {
        table {
            caption { (caption) }
            thead { tr { @for name in columns { th scope="col" { (label(name)) } } } }
            tbody {
                @for row in rows {
                    tr {
                        @for (at, (cell, name)) in row.iter().zip(columns).enumerate() {
                            @if at == 0 { th scope="row" { (cell) } }
                            @else { td data-name=(label(name)) { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

/// A table of some fields of the first rows, by the names and with the values that `--json` of the command prints.
pub(crate) fn listed<T: Serialize>(at: &At, caption: &str, columns: &[&str], rows: &[T]) -> Markup {
    let cells = |row: &T| -> Vec<Markup> {
        let row = serde_json::to_value(row).unwrap_or_default();
        columns.iter().map(|name| cell(at, name, &row)).collect()
    };
    let left = rows.len().saturating_sub(ROWS);
    html! {
        (table(caption, columns, rows.iter().take(ROWS).map(cells)))
        @if left > 0 { p.note { "And " (left) " more." } }
    }
}

/// The same of all fields of one thing that have a value. Its error is shown elsewhere, and its fingerprint nowhere: it tells
/// whether a guess of a hidden payload is right.
pub(crate) fn facts<T: Serialize>(at: &At, thing: &T) -> Markup {
    let thing = serde_json::to_value(thing).unwrap_or_default();
    let names = thing.as_object().into_iter().flat_map(|fields| fields.keys());
    let is_shown = |name: &&String| !matches!(name.as_str(), "error" | "fingerprint");
    let facts = names.filter(is_shown).map(|name| (name, cell(at, name, &thing)));
    html! {
        dl { @for (name, value) in facts { @if !value.0.is_empty() { div { dt { (label(name)) } dd { (value) } } } } }
    }
}

/// The name of a field, for people.
fn label(name: &str) -> String {
    name.replace('_', " ")
}

/// The value of a field, for people.
fn cell(at: &At, name: &str, row: &Value) -> Markup {
    // A message of the inbox has a handler, one of an outbox has none.
    let has_view = name == "id" && row.get("handler").is_some();
    html! {
        @match row.get(name) {
            None | Some(Value::Null) => {}
            Some(Value::Number(id)) if has_view => { a href=(at.link(&format!("/message/{id}"))) { "#" (id) } }
            Some(Value::Number(age)) if name == "seen" => { (past(Duration::from_millis(age.as_u64().unwrap_or_default()))) }
            Some(Value::String(time)) if name == "at" || name.ends_with("_at") || name.ends_with("_until") => {
                (time.get(..19).unwrap_or(time).replace('T', " ")) "Z"
            }
            Some(Value::String(text)) => { (short(text, 120)) }
            Some(Value::Object(parts)) => { @for (name, part) in parts { (label(name)) ": " (part) " " } }
            Some(other) => { (other) }
        }
    }
}

/// The link to the next page of the view, `before` this row.
pub(crate) fn older(at: &At, fields: &Fields, before: Option<i64>) -> Markup {
    let link = before.map(|before| fields.clone().with("before", before).link(&at.link(&at.path)));
    html! { @if let Some(link) = link { p { a href=(link) { "Older" } } } }
}
