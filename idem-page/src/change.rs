//! Changes of messages: each is asked for once, done, and recorded in the table of operations.

use std::ops::ControlFlow;

use axum::http::StatusCode;
use idem_core::Store;
use idem_core::operator::{Bulk, Done, May, Time};
use maud::{Markup, html};

use crate::guard::At;
use crate::text::{messages, number, short};
use crate::visit::{Failure, Fields, View, Visit};

/// How many messages one form changes at most. More are another form: a request should not take minutes.
const MOST: u64 = 1000;

/// The changes: the last parts of their paths, their names, and the consequences.
const ACTIONS: [(&str, May, &str, &str); 3] = [
    ("replay", May::Replay, "Replay", "They become due now, with all their attempts, and keep their claims."),
    ("force", May::Force, "Replay by force", "Effects that are committed are written again, unless handlers check."),
    ("discard", May::Discard, "Discard", "They are deleted, and not processed: copies of them are duplicates."),
];

/// The buttons for what may be done with the messages that the fields select.
pub(crate) fn buttons(at: &At, selected: &Fields, may: &[May]) -> Markup {
    html! {
        form.buttons method="post" {
            (selected.hidden())
            @for (action, needed, title, _) in ACTIONS {
                @if may.contains(&needed) { button formaction=(at.link(&format!("/do/{action}"))) { (title) "…" } }
            }
        }
    }
}

/// Asks, or does it if the form says that the question was answered. A message that dies after the question is not meant by the
/// answer.
pub(crate) async fn view<S: Store>(visit: &Visit<S>, action: &str) -> Result<View, Failure> {
    let fields = &visit.fields;
    let known = ACTIONS.into_iter().find(|(name, ..)| *name == action);
    let (_, _, title, meaning) =
        known.ok_or_else(|| Failure(StatusCode::NOT_FOUND, format!("there is no change {action:?}")))?;
    if fields.filter().iter().next().is_none() {
        return Err(Failure::asked("no message was selected"));
    }
    let (operator, filter) = visit.filter().await?;
    let is_sure = fields.get("sure").is_some();
    let bulk = Bulk { limit: Some(MOST), dry_run: !is_sure, force: action == "force", ..Bulk::default() };
    let go_on = |_: &Done| ControlFlow::Continue(());
    let done = match action {
        "discard" => operator.discard_all(&filter, bulk, go_on).await?,
        _ => operator.replay_all(&filter, bulk, go_on).await?,
    };
    let count = done.due + done.discarded;
    let rows = messages(count);
    // The time up to which the question was asked, however late the answer comes.
    let until = filter.until.map_or(done.before.0, |until| until.0.min(done.before.0));
    let fields = fields.filter().with("until", Time(until));
    let back = fields.link(&visit.at.link("/dead"));
    let recorded = Fields::default().with("command", operator.command()).link(&visit.at.link("/operations"));
    let body = html! {
        @if is_sure {
            p.verdict.ok role="status" { strong { (rows) " changed." } }
            p { a href=(recorded) { "What was recorded" } ", " a href=(back) { "what is left" } }
        } @else {
            p.verdict { @if count > 0 { (meaning) } @else { "There is nothing to do." } }
            p { @for (name, value) in fields.iter() { (name) ": " code { (short(value, 600)) } " " } }
            form.buttons method="post" action=(visit.at.link(&visit.at.path)) {
                (fields.clone().with("sure", 1).hidden())
                @if count > 0 { button autofocus[action == "replay"] { (title) " " (rows) } }
                a href=(back) { "Cancel" }
            }
        }
        (left(&done))
    };
    Ok((if is_sure || count == 0 { title.to_owned() } else { format!("{title} {rows}?") }, body))
}

/// The rows that are not changed, and why.
fn left(done: &Done) -> Markup {
    let left = [
        (done.needs_force, "left: their effects may be committed. Look, then replay them by force, or discard them."),
        (done.needs_key, "left: another message has their key. Replay each under another key, or discard it."),
        (done.unresolved, "left: their calls may have had an effect. Look at the provider, and resolve each."),
        (done.gone, "gone: replayed or discarded meanwhile, by a person or a worker."),
        (done.unsearched, "not searched: payloads above 1 MiB."),
    ];
    html! {
        ul {
            @for (rows, why) in left { @if rows > 0 { li { (number(rows)) " " (why) } } }
            @if done.is_cut { li { "There are more: at most " (number(MOST)) " are done at once." } }
        }
    }
}
