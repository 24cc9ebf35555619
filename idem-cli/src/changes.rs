//! What changes messages: replay, discard, resolve, forget.

use std::io::{IsTerminal, stderr};
use std::ops::ControlFlow;

use idem_core::operator::{Bulk, Done, Filter, Forgotten, Page, keys};
use idem_core::store::{CallAnswer, Replayed, Resolution};
use idem_core::{Key, Store};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::args::{Found, Outgoing, Which};
use crate::connect::Session;
use crate::output::{Exit, Failure, facts, tell};
use crate::reads::{checked, no_match};

/// How many messages of an outbox are read and changed in one step.
const STEP: u32 = 500;

pub(crate) async fn replay<S: Store>(on: &Session<S>, which: &Which, force: bool, new_keys: bool) -> Exit {
    let (filter, bulk) = selected(on, which).await?;
    let bulk = Bulk { force, new_keys, ..bulk };
    end(on, which, &filter, &on.operator.replay_all(&filter, bulk, progress).await?)
}

pub(crate) async fn discard<S: Store>(on: &Session<S>, which: &Which, yes: bool) -> Exit {
    let (filter, bulk) = selected(on, which).await?;
    let bulk = Bulk { dry_run: which.dry_run || !yes, ..bulk };
    end(on, which, &filter, &on.operator.discard_all(&filter, bulk, progress).await?)
}

/// Which dead letters are meant, and how many and how fast. Nothing does not mean all.
async fn selected<S: Store>(on: &Session<S>, which: &Which) -> Result<(Filter, Bulk), Failure> {
    let mut filter = checked(on, &which.filters).await?;
    filter.ids.clone_from(&which.ids);
    if filter.is_all() && !which.all {
        return Err(Failure::usage("this would be all dead letters: say ids, a filter such as --handler, or --all"));
    }
    let bulk = Bulk { limit: which.limit, rate: which.rate, dry_run: which.dry_run, ..Bulk::default() };
    Ok((filter, bulk))
}

/// Tells a person who waits how far it is. Ctrl-C may end it at any time: each chunk is a statement of its own.
fn progress(done: &Done) -> ControlFlow<()> {
    if stderr().is_terminal() {
        tell(&format!("{} done", done.due + done.discarded));
    }
    ControlFlow::Continue(())
}

/// Prints what was done, and what is left, with what to do about it. Exit 1 if nothing matched, and 5 if something is left.
fn end<S: Store>(on: &Session<S>, which: &Which, filter: &Filter, done: &Done) -> Exit {
    let left = done.needs_force + done.needs_key + done.unresolved;
    let found = done.due + done.discarded + left;
    // An id that is not found belongs to no dead letter any more.
    let gone = done.gone.max((which.ids.len() as u64).saturating_sub(found));
    let text = |shown: &Value| {
        let notes = [
            (u64::from(which.dry_run), "nothing was changed: --dry-run"),
            (done.needs_force, "needs_force: their effects may be there. Look, and then say --force"),
            (done.needs_key, "needs_key: conflicts. --as for one, or --new-keys after a deploy"),
            (done.unresolved, "unresolved: their calls may have had an effect. idem calls"),
            (gone, "gone: no dead letter has this id (any more). idem operations"),
        ];
        let notes = notes.into_iter().filter(|(rows, _)| *rows > 0).map(|(_, note)| format!("{note}\n"));
        if found > 0 { facts(shown) + &notes.collect::<String>() } else { String::new() }
    };
    let mut shown = *done;
    shown.gone = gone;
    on.out.answer(&shown, text)?;
    let is_all = left + gone == 0;
    match found {
        0 if done.gone == 0 && which.ids.is_empty() => Err(no_match(filter, done.looked, done.unsearched)),
        0 => {
            Err(Failure::none("no such dead letter (any more), or it is locked: idem operations shows who changed it"))
        }
        _ => Ok(if is_all { 0 } else { 5 }),
    }
}

/// Replays one conflict under another key.
pub(crate) async fn replay_as<S: Store>(on: &Session<S>, which: &Which, key: &str) -> Exit {
    let [id] = which.ids[..] else { return Err(Failure::usage("a new key is for one message: say one id")) };
    let key = Key::of(key).map_err(|error| Failure::usage(error.to_string()))?;
    match on.operator.replay_as(id, &key).await? {
        Replayed::Due => on.out.answer(&json!({ "due": 1 }), facts),
        Replayed::KeyTaken => Err(Failure::usage(format!("another message has the key {key}, too"))),
        _ => Err(Failure::none(format!("#{id} was not changed: idem dead show {id} says what it is"))),
    }
}

/// Stages dead messages of an outbox again, or deletes them.
pub(crate) async fn outgoing<S: Store>(on: &Session<S>, which: &Outgoing, again: bool) -> Exit {
    let (name, mut ids) = (&*which.name, which.ids.clone());
    let mut next = which.all.then(|| Page::new(STEP).without_payloads());
    while let Some(page) = next.take() {
        let rows = on.operator.outgoing(name, false, page).await?;
        next = rows.last().map(|last| page.before(last.id));
        ids.extend(rows.iter().map(|row| row.id));
    }
    let mut changed = Vec::new();
    for some in ids.chunks(STEP as usize) {
        changed.extend(match again {
            true => on.operator.replay_outgoing(name, some).await?,
            false => on.operator.discard_outgoing(name, some).await?,
        });
    }
    on.out.answer(&changed, |_| format!("{} changed", changed.len()))?;
    match changed.len() {
        0 => Err(Failure::none(format!("no such message of the outbox {name:?} is dead (any more): idem outbox list"))),
        some => Ok(if some < ids.len() { 5 } else { 0 }),
    }
}

/// Records what became of a call.
pub(crate) async fn resolve<S: Store>(on: &Session<S>, id: i64, key: Uuid, found: Found) -> Exit {
    let resolution = match found {
        Found { answer: Some(answer), .. } => Resolution::Answer(CallAnswer::new(answer)),
        Found { again: true, .. } => Resolution::CallAgain,
        Found { discard: true, .. } => Resolution::Discard,
        Found { .. } => return Err(Failure::usage("say --answer, --again or --discard")),
    };
    if !on.operator.resolve(id, key, resolution).await? {
        return Err(Failure::none(format!("#{id} has no call with the key {key} (any more): idem dead show {id}")));
    }
    on.out.answer(&json!({ "done": true }), facts)
}

/// Deletes the claim of a processed message.
pub(crate) async fn forget<S: Store>(on: &Session<S>, handler: &str, text: &str) -> Exit {
    let handler = on.operator.handler(handler).await?;
    for key in keys(text) {
        match on.operator.forget(&handler, &key).await? {
            Forgotten::NoClaim => {}
            Forgotten::InInbox(id) => {
                return Err(Failure::none(format!("it waits as #{id}: idem dead show {id} says what may be done")));
            }
            forgotten => return on.out.answer(&forgotten, facts),
        }
    }
    Err(Failure::none(format!("{}/{} has no claim of {text:?}", handler.consumer, handler.name)))
}
