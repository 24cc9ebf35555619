//! Traces of relays that are a path of the model, and what must be refused.

use super::table::shown;
use crate::check::check_trace;
use crate::relay::{Defect, of, worlds};
use crate::traces::writer::{Writer, all_steps_have_entries, names};

const TAKEN: [&str; 1] = ["p lease-taken/-@l lease=600"];
const READ: [&str; 1] = ["p read/a@l id=1 order=6b"];
const BEHIND: [&str; 1] = ["p read/b@l id=2 order=6b"];
const SENT: [&str; 2] = ["p published/a@-", "p confirmed/a@-"];
const SENT_BEHIND: [&str; 2] = ["p published/b@-", "p confirmed/b@-"];
const DELETED: [&str; 1] = ["p deleted/a@l"];
/// Another relay, once the lease is over.
const OTHER: [&str; 5] =
    ["+1", "q lease-taken/-@l lease=600", "q read/a@l id=1 order=6b", "q published/a@-", "q confirmed/a@-"];

#[track_caller]
fn accepted(parts: &[&[&str]]) {
    let text = Writer::all(&parts.concat());
    let checked = check_trace(&text).unwrap_or_else(|refusal| panic!("{text}{refusal}"));
    assert!(checked.outgoing > 0 && checked.keys == 0, "{checked}");
}

/// Asserts that a trace is refused at this line, and returns the report.
#[track_caller]
fn refused(parts: &[&[&str]], at: &str) -> String {
    let text = Writer::all(&parts.concat());
    let refusal = check_trace(&text).expect_err(&text);
    names(&refusal, &["in the order of the key \"", "Not possible: record "]);
    let stop = refusal.lines().find(|line| line.starts_with("Not possible:")).unwrap_or_default();
    assert!(stop.ends_with(&format!(": {at}")), "{refusal}");
    refusal
}

#[test]
fn a_message_that_is_read_published_confirmed_and_deleted_is_a_path() {
    accepted(&[&TAKEN, &READ, &SENT, &DELETED]);
    // The next one of its key does not wait for the delete.
    accepted(&[&TAKEN, &READ, &BEHIND, &SENT, &SENT_BEHIND, &DELETED, &["p deleted/b@l"]]);
    accepted(&[&TAKEN, &READ, &SENT, &DELETED, &BEHIND, &SENT_BEHIND]);
    let away = ["p published/a@-", "p unconfirmed/a@-", "p read/a@l id=1 order=6b"];
    accepted(&[&TAKEN, &READ, &away, &SENT, &DELETED]);
}

#[test]
fn another_relay_goes_on_when_a_lease_is_over() {
    let end = ["q deleted/a@l"];
    accepted(&[&TAKEN, &READ, &SENT, &["p? died"], &OTHER, &end]);
    accepted(&[&TAKEN, &READ, &SENT[..1], &["p? died"], &OTHER, &end]);
    accepted(&[&TAKEN, &READ, &SENT, &["p? deleted/a@l", "p? died", "+1", "q lease-taken/-@l lease=600"]]);
    // One that lives does nothing any more.
    accepted(&[&TAKEN, &READ, &SENT[..1], &OTHER, &["p unconfirmed/a@-"], &end]);
    accepted(&[&TAKEN, &READ, &SENT, &DELETED, &["p? lease-given/-@l", "q lease-taken/-@l lease=600"]]);
    // A lease that was taken without an answer.
    accepted(&[&["p? lease-taken/-@- lease=600", "p lease-renewed/-@l lease=600"], &READ, &SENT, &DELETED]);
}

#[test]
fn a_lease_goes_on_when_it_is_renewed() {
    accepted(&[&TAKEN, &READ, &["p lease-renewed/-@l lease=3600"], &["+1"], &SENT, &DELETED]);
    // Nobody else has taken it meanwhile.
    accepted(&[&TAKEN, &READ, &["+1", "p lease-renewed/-@l lease=600"], &SENT, &DELETED]);
}

#[test]
fn a_message_that_is_refused_blocks_its_key_until_it_is_given_up() {
    let waits = ["p published/a@-", "p refused/a@-", "p? refusal-recorded/a@l dead=no", READ[0]];
    let dead = ["p published/a@-", "p refused/a@-", "p? refusal-recorded/a@l dead=yes"];
    accepted(&[&TAKEN, &READ, &waits, &SENT, &DELETED]);
    accepted(&[&TAKEN, &READ, &waits, &waits, &dead, &BEHIND, &SENT_BEHIND]);
    refused(&[&TAKEN, &READ, &BEHIND, &waits, &SENT_BEHIND], "p published b");
    refused(&[&TAKEN, &READ, &dead, &SENT], "p published a");
}

#[test]
fn a_delete_before_the_confirm_is_refused() {
    refused(&[&TAKEN, &READ, &SENT[..1], &DELETED], "p deleted a");
    refused(&[&TAKEN, &READ, &["p published/a@-", "p unconfirmed/a@-"], &DELETED], "p deleted a");
    refused(&[&TAKEN, &READ, &["p published/a@-", "p refused/a@-"], &DELETED], "p deleted a");
    refused(&[&TAKEN, &READ, &DELETED], "p deleted a");
    // By a relay that has lost the lease.
    refused(&[&TAKEN, &READ, &SENT, &OTHER, &DELETED], "p deleted a");
}

#[test]
fn what_is_published_after_the_lease_is_refused() {
    let refusal = refused(&[&TAKEN, &READ, &["+1"], &SENT], "p published a");
    names(&refusal, &["The lease was over."]);
    refused(&[&TAKEN, &READ, &OTHER, &SENT], "p published a");
}

#[test]
fn a_lease_that_is_taken_during_a_lease_is_refused() {
    for end in [&["p? died"][..], &[]] {
        let refusal = refused(&[&TAKEN, &READ, &SENT, end, &OTHER[1..]], "q lease-taken  lease=600");
        names(&refusal, &["The lease of another relay was not over."]);
    }
}

#[test]
fn a_message_that_overtakes_another_one_of_its_key_is_refused() {
    refused(&[&TAKEN, &READ, &BEHIND, &SENT_BEHIND], "p published b");
    refused(&[&TAKEN, &READ, &BEHIND, &SENT[..1], &SENT_BEHIND], "p published b");
    // One of another key does not wait.
    let other = ["p read/b@l id=2 order=6a", "p published/b@-", "p confirmed/b@-", "p deleted/b@l"];
    accepted(&[&TAKEN, &READ, &other, &SENT]);
}

#[test]
fn a_step_of_a_relay_that_is_missing_is_refused() {
    let missing: [(&[&[&str]], &str); 4] = [
        (&[&READ, &SENT, &DELETED], "p read a id=1 order=6b"),
        (&[&TAKEN, &SENT, &READ, &DELETED], "p published a"),
        (&[&TAKEN, &READ, &SENT[1..], &DELETED], "p confirmed a"),
        (&[&TAKEN, &SENT, &DELETED], "p published a"),
    ];
    for (parts, at) in missing {
        refused(parts, at);
    }
}

#[test]
fn each_step_of_the_model_has_an_entry() {
    let broken = Defect::ALL.iter().map(|(defect, ..)| of(*defect).broken(*defect));
    all_steps_have_entries(worlds(true).into_iter().chain(broken), shown);
}
