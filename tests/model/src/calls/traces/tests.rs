//! Traces of calls that are a path of the model.

use super::table::shown;
use crate::calls::{Defect, of, worlds};
use crate::check::check_trace;
use crate::traces::writer::{Writer, all_steps_have_entries};

pub(super) const STORED: [&str; 3] = ["p received delivery=1 stores=yes", "p stored", "p acked delivery=1"];
pub(super) const FETCHED: [&str; 1] = ["p call-fetched key=1 lease=13000"];
pub(super) const CALLED: [&str; 2] = ["p sent key=1 keyed=yes asks=yes", "p answered key=1"];
pub(super) const KEPT: [&str; 1] = ["p answer-kept key=1"];
pub(super) const RUN: [&str; 4] =
    ["p fetched starts=1", "p started", "p committed of=row", "- left row=none claim=dated"];
/// A call without a key whose answer was lost.
pub(super) const MAIL: [&str; 4] = [
    "p call-fetched key=1 lease=13000",
    "p sent key=1 keyed=no asks=yes",
    "p call-failed key=1",
    "p call-doubted key=1 dead=no",
];

#[track_caller]
fn accepted(parts: &[&[&str]]) {
    let text = Writer::all(&[&STORED[..], &parts.concat()[..]].concat());
    let checked = check_trace(&text).unwrap_or_else(|refusal| panic!("{text}{refusal}"));
    assert_eq!(checked.calls, 1, "{checked}");
}

#[test]
fn a_call_and_its_completion_are_a_path() {
    accepted(&[&FETCHED, &CALLED, &KEPT, &RUN]);
    // The answer is kept, whatever becomes of the completion.
    let fails =
        ["p fetched starts=1", "p started", "p rolled-back of=row", "p recorded result=failed attempts=1 dead=no"];
    let again = ["p fetched starts=1 attempts=1", "p started", "p committed of=row"];
    accepted(&[&FETCHED, &CALLED, &KEPT, &fails, &again]);
    let dies = ["p fetched starts=1", "p started", "p? committed of=row", "p? died"];
    accepted(&[&FETCHED, &CALLED, &KEPT, &dies, &["- left row=none claim=dated"]]);
    let again = ["q fetched starts=2", "q started", "q committed of=row"];
    accepted(&[&FETCHED, &CALLED, &KEPT, &dies, &again]);
}

#[test]
fn a_call_without_an_effect_is_made_again() {
    let busy = [CALLED[0], "p call-failed key=1", "p call-not-done key=1 unused=yes dead=no"];
    accepted(&[&FETCHED, &busy, &FETCHED, &CALLED, &KEPT, &RUN]);
    let late = ["p call-snoozed key=1 unused=yes"];
    accepted(&[&FETCHED, &late, &FETCHED, &CALLED, &KEPT, &RUN]);
}

#[test]
fn a_call_in_doubt_is_repeated_under_its_key() {
    let doubt = [CALLED[0], "p call-failed key=1", "p call-doubted key=1 dead=no", "+13"];
    accepted(&[&FETCHED, &doubt, &FETCHED, &CALLED, &KEPT, &RUN]);
    let dies = [CALLED[0], "p? died", "+13", "q call-fetched key=1 lease=13000"];
    let again = ["q sent key=1 keyed=yes asks=yes", "q answered key=1", "q answer-kept key=1"];
    accepted(&[&FETCHED, &dies, &again, &["q fetched starts=1", "q started", "q committed of=row"]]);
    // A fetch without an answer, and a record without one.
    accepted(&[&["p? call-fetched/-@-", "p? died", "+13"], &dies[3..], &again]);
    accepted(&[&FETCHED, &CALLED, &["p? answer-kept key=1"], &RUN]);
    accepted(&[&FETCHED, &CALLED, &["p? answer-kept key=1", "p? died", "+13"], &dies[3..], &again]);
}

#[test]
fn the_provider_is_asked_about_a_call_that_must_not_be_repeated() {
    let early = ["+13", FETCHED[0], "p call-snoozed key=1 unused=no", "+30", FETCHED[0]];
    let there = ["p asked key=1 reply=there", "p answer-kept key=1"];
    accepted(&[&MAIL, &early, &there, &RUN]);
    let again = ["p sent key=1 keyed=no asks=yes", "p answered key=1", "p answer-kept key=1"];
    let not_there = ["p asked key=1 reply=not-there", "p call-dated key=1 lease=13000"];
    accepted(&[&MAIL, &early, &not_there, &again, &RUN]);
    let away = ["p asked key=1 reply=unknown", "p question-failed key=1 dead=no", FETCHED[0]];
    accepted(&[&MAIL, &early, &away, &there, &RUN]);
    let old = ["+86400", FETCHED[0]];
    let doubt = [FETCHED[0], CALLED[0], "p call-failed key=1", "p call-doubted key=1 dead=no"];
    accepted(&[&doubt, &old, &there, &RUN]);
    accepted(&[&doubt, &old, &not_there, &CALLED, &KEPT, &RUN]);
}

#[test]
fn an_operator_resolves_a_call_that_nobody_can_tell() {
    let unknown = ["p asked key=1 reply=unknown", "p unresolved key=1"];
    let dead = [&MAIL[..], &["+43", FETCHED[0]], &unknown].concat();
    accepted(&[&dead, &["- resolved by=answer"], &RUN]);
    let again = ["p call-fetched key=2 lease=13000", "p sent key=2 keyed=no asks=yes", "p answered key=2"];
    accepted(&[&dead, &["- resolved by=call"], &again, &["p answer-kept key=2"], &RUN]);
    accepted(&[&dead, &["- call-discarded"]]);
    let last = [&MAIL[..3], &["p call-doubted key=1 dead=yes", "- call-replayed", "+13", FETCHED[0]]].concat();
    accepted(&[&last, &["p asked key=1 reply=there", "p answer-kept key=1"], &RUN]);
}

#[test]
fn an_answer_that_comes_late_is_kept() {
    let late = ["p sent key=1 keyed=yes asks=yes", "+13", "q call-fetched key=1 lease=13000", "p answered key=1"];
    let kept = ["p answer-kept key=1", "q fetched starts=1", "q started", "q committed of=row"];
    accepted(&[&FETCHED, &late, &kept]);
    let other = ["q sent key=1 keyed=yes asks=yes", "p answer-kept key=1", "q answered key=1"];
    accepted(&[&FETCHED, &late, &other, &kept[1..]]);
}

#[test]
fn each_step_of_the_model_has_an_entry() {
    let broken = Defect::ALL.iter().map(|(defect, ..)| of(*defect).broken(*defect));
    all_steps_have_entries(worlds(true).into_iter().chain(broken), shown);
}
