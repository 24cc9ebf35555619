//! Traces that are a path of the model, and what must be refused.

use super::table::shown;
use crate::check::check_trace;
use crate::messages::{Defect, of, worlds};
use crate::traces::writer::{Writer, all_steps_have_entries};

fn accepted(lines: &[&str]) {
    let text = Writer::all(lines);
    check_trace(&text).unwrap_or_else(|refusal| panic!("{text}{refusal}"));
}

/// Asserts that a trace is refused at this line, and returns the report.
#[track_caller]
fn refused(lines: &[&str], at: &str) -> String {
    refused_text(&Writer::all(lines), at)
}

#[track_caller]
fn refused_text(text: &str, at: &str) -> String {
    let refusal = check_trace(text).expect_err(text);
    assert!(refusal.contains(&format!("Not possible: record {at}")), "{refusal}");
    assert!(refusal.contains("the key \"k\""), "{refusal}");
    refusal
}

const DIRECT: [&str; 4] =
    ["p received delivery=1 stores=no", "p claimed", "p committed of=claim", "p acked delivery=1"];
const STORED: [&str; 3] = ["p received delivery=1 stores=yes", "p stored", "p acked delivery=1"];
const RUN: [&str; 3] = ["p fetched starts=1 attempts=0 breaks=0", "p started", "p committed of=row"];

#[test]
fn a_delivery_is_a_path() {
    accepted(&DIRECT);
    accepted(&[&STORED[..], &RUN, &["- left row=none claim=dated"]].concat());
}

#[test]
fn a_copy_is_acked_behind_the_commit_only() {
    let copy = ["p received delivery=2 stores=no", "p acked delivery=2"];
    accepted(&[&DIRECT[..], &copy].concat());
    refused(&[&DIRECT[..2], &copy, &DIRECT[2..]].concat(), "7: p acked m delivery=2");
}

#[test]
fn an_ack_before_the_commit_is_refused() {
    let [received, claimed, committed, acked] = DIRECT;
    let refusal = refused(&[received, claimed, acked, committed], "5: p acked m delivery=1");
    assert!(refusal.contains("Behind record 3: p claimed m"), "{refusal}");
    assert!(refusal.contains("  p: commits the effect of m with its claim\n"), "{refusal}");
}

#[test]
fn an_ack_that_overlaps_the_commit_is_not_refused() {
    let mut writer = Writer::default();
    writer.line(DIRECT[0]);
    writer.line(DIRECT[1]);
    let commit = writer.begin(DIRECT[2]);
    writer.line(DIRECT[3]);
    writer.end(commit);
    check_trace(&writer.text).unwrap();
}

#[test]
fn a_second_commit_is_refused() {
    let again = ["q received delivery=1 stores=no", "q claimed", "q committed of=claim"];
    let refusal = refused(&[&DIRECT[..], &again].concat(), "11: q claimed m");
    assert!(!refusal.contains("commits the effect"), "{refusal}");
    let row = [&STORED[..], &RUN, &["p started", "p committed of=row"]].concat();
    refused(&row, "13: p started m");
}

#[test]
fn a_step_that_is_missing_is_refused() {
    let whole = [&STORED[..], &RUN].concat();
    accepted(&whole);
    for (missing, at) in [(1, "3: p acked"), (3, "7: p started"), (4, "9: p committed")] {
        let mut lines = whole.clone();
        lines.remove(missing);
        refused(&lines, at);
    }
    // Nobody would miss its last step, but for what is left in the database.
    let left = [&STORED[..], &RUN[..2], &["- left row=none claim=dated"]].concat();
    refused(&left, "11: - left");
}

#[test]
fn steps_in_the_wrong_order_are_refused() {
    let whole = [&STORED[..], &RUN].concat();
    let mut swapped = whole.clone();
    swapped.swap(3, 4);
    refused(&swapped, "7: p started");
    let mut swapped = whole;
    swapped.swap(4, 5);
    refused(&swapped, "9: p committed");
}

#[test]
fn a_start_that_is_not_counted_is_refused() {
    let uncounted = ["p fetched starts=0 attempts=0 breaks=0"];
    let refusal = refused(&[&STORED[..], &uncounted, &RUN[1..]].concat(), "7: p fetched m starts=0");
    assert!(refusal.contains("fetches the row of m"), "{refusal}");
    let orphan = ["p? died", "q fetched starts=1 attempts=0 breaks=0"];
    refused(&[&STORED[..], &RUN[..2], &orphan].concat(), "12: q fetched m starts=1");
}

#[test]
fn an_orphan_is_fetched_with_its_start_and_run() {
    let orphan = ["p? died", "q fetched starts=2 attempts=0 breaks=0", "q started", "q committed of=row"];
    accepted(&[&STORED[..], &RUN[..2], &orphan].concat());
    // A process that lives has not lost its row to a crash, but it may have been paused.
    accepted(&[&STORED[..], &RUN[..1], &orphan[1..]].concat());
    refused(&[&STORED[..], &RUN[..2], &orphan[1..]].concat(), "11: q fetched m");
}

#[test]
fn an_orphan_of_two_starts_has_its_process_to_itself() {
    let twice = ["p? died", "q fetched starts=2", "q started", "q? died"];
    let orphan = [&STORED[..], &RUN[..2], &twice, &["r fetched starts=3", "r started"]].concat();
    let other = ["r received@j delivery=1 stores=no", "r claimed@j", "r committed@j of=claim"];
    let end = ["r committed of=row"];
    accepted(&[&orphan[..], &end, &other].concat());
    let refusal = check_trace(&Writer::all(&[&orphan[..], &other, &end].concat())).unwrap_err();
    assert!(refusal.contains("the keys [\"j\", \"k\"] together"), "{refusal}");
    assert!(refusal.contains(": r claimed m"), "{refusal}");
    // One with a single start keeps out rows only.
    let once = [&STORED[..], &RUN[..2], &twice[..3]].concat();
    let beside = ["q received@j delivery=1 stores=no", "q claimed@j", "q committed@j of=claim"];
    accepted(&[&once[..], &beside, &["q committed of=row"]].concat());
    let row = ["q received@j delivery=1 stores=yes", "q stored@j", "q fetched@j starts=1"];
    let refusal = check_trace(&Writer::all(&[&once[..], &row, &["q committed of=row"]].concat())).unwrap_err();
    assert!(refusal.contains(": q fetched m starts=1"), "{refusal}");
}

#[test]
fn a_row_that_is_fetched_during_a_lease_is_refused() {
    // The steps of these tests take a nanosecond.
    let fetched = ["p fetched starts=1 attempts=0 breaks=0 lease=1000", "p? died"];
    let refusal = refused(&[&STORED[..], &fetched, &["q fetched starts=2"]].concat(), "10: q fetched");
    assert!(refusal.contains("lease of another holder"), "{refusal}");
    let snoozed = ["p fetched starts=1 lease=1000", "p snoozed", "q fetched starts=1 lease=1000"];
    accepted(&[&STORED[..], &snoozed].concat());
}

#[test]
fn a_failure_is_recorded_once_and_with_its_attempt() {
    let failed = ["p rolled-back of=claim", "p failed attempts=1 dead=no"];
    let direct = [&DIRECT[..2], &failed, &DIRECT[3..]].concat();
    let run = ["p fetched starts=1 attempts=1 breaks=0", "p started", "p rolled-back of=row"];
    let dead = ["p recorded result=failed dead=yes attempts=2"];
    accepted(&[&direct[..], &run, &dead].concat());
    accepted(&[&direct[..], &run, &dead, &["- replayed", "p fetched starts=1 attempts=0 breaks=0"]].concat());
    accepted(&[&direct[..], &run, &dead, &["- discarded", "- left row=none claim=dated"]].concat());
    refused(&[&direct[..], &run, &["p recorded result=failed dead=yes attempts=1"]].concat(), "17: p recorded");
    refused(&[&direct[..], &run, &dead, &dead].concat(), "19: p recorded");
    refused(&[&direct[..], &["- discarded"]].concat(), "11: - discarded");
    // A rollback without a recorded attempt begins again: with its batch, or after a race.
    accepted(&[&DIRECT[..2], &failed[..1], &DIRECT[1..]].concat());
    accepted(&[&STORED[..], &RUN[..2], &["p rolled-back of=row"], &RUN[1..]].concat());
}

#[test]
fn a_commit_without_an_answer_may_have_been_done() {
    let unanswered = [&DIRECT[..2], &["p? committed of=claim"]].concat();
    accepted(&[&unanswered[..], &["p acked delivery=1"]].concat());
    accepted(&[&unanswered[..], &["p stored", "p acked delivery=1"]].concat());
    accepted(&[&unanswered[..], &["p? died", "q received delivery=1 stores=yes", "q stored"]].concat());
    accepted(&[&unanswered[..], &["p? died", "q received delivery=1 stores=yes", "q acked delivery=1"]].concat());
}

#[test]
fn a_delivery_that_is_gone_comes_again() {
    let gone = ["p received delivery=1 stores=no", "p gone delivery=1"];
    let again = ["q received delivery=1 stores=yes", "q stored", "q acked delivery=1"];
    accepted(&[&gone[..], &again].concat());
    accepted(&[&DIRECT[..3], &gone[1..], &["q received delivery=1 stores=yes", "q acked delivery=1"]].concat());
    refused(&[&gone[..], &["q claimed"]].concat(), "5: q claimed");
}

#[test]
fn a_conflict_is_dead_beside_the_claim() {
    let conflict = ["p received/n delivery=2 stores=no", "p conflict/n", "p acked/n delivery=2"];
    accepted(&[&DIRECT[..], &conflict].concat());
    refused(&[&DIRECT[..], &conflict[..1], &conflict[2..]].concat(), "11: p acked n delivery=2");
    let runs = ["p received/n delivery=2 stores=no", "p claimed/n"];
    refused(&[&DIRECT[..], &runs].concat(), "11: p claimed n");
}

#[test]
fn a_step_that_the_model_does_not_know_is_refused() {
    let unknown = check_trace(&Writer::all(&["p uncounted"])).unwrap_err();
    assert!(unknown.contains("record 1") && unknown.contains("does not know this step"), "{unknown}");
}

#[test]
fn each_step_of_the_model_has_an_entry() {
    let broken = Defect::ALL.iter().map(|(defect, ..)| of(*defect).broken(*defect));
    all_steps_have_entries(worlds(true).into_iter().chain(broken), shown);
}
