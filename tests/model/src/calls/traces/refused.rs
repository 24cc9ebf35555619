//! Traces of calls that break a rule.

use super::tests::{CALLED, FETCHED, KEPT, MAIL, RUN, STORED};
use crate::check::check_trace;
use crate::traces::writer::{Writer, names};

/// Asserts that a trace is refused at this line of the call, and returns the report.
#[track_caller]
fn refused(parts: &[&[&str]], at: &str) -> String {
    let text = Writer::all(&[&STORED[..], &parts.concat()[..]].concat());
    let refusal = check_trace(&text).expect_err(&text);
    names(&refusal, &["the call of the key \"k\"", &format!(": {at}\n"), "Not possible: record "]);
    let stop = refusal.lines().find(|line| line.starts_with("Not possible:")).unwrap_or_default();
    assert!(stop.ends_with(at), "{refusal}");
    refusal
}

#[test]
fn a_call_that_is_sent_after_its_lease_is_refused() {
    let refusal = refused(&[&FETCHED, &["+14"], &CALLED], "p sent m key=1 keyed=yes asks=yes");
    names(&refusal, &["The lease of the row was over."]);
    // Another worker has the row.
    let other = ["+13", "q call-fetched key=1 lease=13000"];
    refused(&[&FETCHED, &other, &CALLED], "p sent m key=1 keyed=yes asks=yes");
    // A new lease begins when the call is dated anew.
    let dated = ["+13", FETCHED[0], "p asked key=1 reply=not-there", "+12", "p call-dated key=1 lease=13000"];
    refused(&[&MAIL, &dated, &["+14", "p sent key=1 keyed=no asks=yes"]], "p sent m key=1 keyed=no asks=yes");
}

#[test]
fn a_row_that_is_fetched_for_a_call_during_a_lease_is_refused() {
    let other = "q call-fetched key=1 lease=13000";
    for taken in [&["p sent key=1 keyed=yes asks=yes", "p? died"][..], &["p? died"], &MAIL[1..]] {
        let refusal = refused(&[&FETCHED, taken, &["+12", other]], "q call-fetched m key=1 lease=13000");
        names(&refusal, &["The lease of another holder of the row was not over."]);
    }
}

#[test]
fn a_call_under_another_key_is_refused() {
    let other = ["p sent key=2 keyed=yes asks=yes", "p answered key=2", "p answer-kept key=2"];
    refused(&[&FETCHED, &other], "p sent m key=2 keyed=yes asks=yes");
    let doubt = [CALLED[0], "p call-failed key=1", "p call-doubted key=1 dead=no", "+13"];
    refused(&[&FETCHED, &doubt, &["p call-fetched key=2 lease=13000"]], "p call-fetched m key=2 lease=13000");
    // The provider knows of no call under it.
    let asked = ["+13", FETCHED[0], "p asked key=1 reply=not-there"];
    refused(&[&MAIL, &asked, &["p call-dated key=2 lease=13000"]], "p call-dated m key=2 lease=13000");
    let resolved = ["+13", FETCHED[0], "p asked key=1 reply=unknown", "p unresolved key=1", "- resolved by=call"];
    refused(&[&MAIL, &resolved, &FETCHED], "p call-fetched m key=1 lease=13000");
}

#[test]
fn a_call_with_an_answer_kept_is_refused() {
    refused(&[&FETCHED, &CALLED, &KEPT, &FETCHED], "p call-fetched m key=1 lease=13000");
    refused(&[&FETCHED, &CALLED, &KEPT, &CALLED], "p sent m key=1 keyed=yes asks=yes");
    refused(&[&FETCHED, &CALLED, &KEPT, &RUN[..3], &FETCHED], "p call-fetched m key=1 lease=13000");
}

#[test]
fn a_step_of_a_call_that_is_missing_is_refused() {
    let missing: [(&[&[&str]], &str); 4] = [
        (&[&CALLED, &KEPT], "p sent m key=1 keyed=yes asks=yes"),
        (&[&FETCHED, &CALLED[1..], &KEPT], "p answered m key=1"),
        (&[&FETCHED, &CALLED[..1], &KEPT], "p answer-kept m key=1"),
        (&[&FETCHED, &CALLED, &RUN], "p started m"),
    ];
    for (parts, at) in missing {
        refused(parts, at);
    }
    let twice = [CALLED[0], CALLED[0]];
    refused(&[&FETCHED, &twice], "p sent m key=1 keyed=yes asks=yes");
}

#[test]
fn a_begun_call_that_is_repeated_to_a_provider_without_keys_is_refused() {
    let again = ["+13", FETCHED[0], "p sent key=1 keyed=no asks=yes"];
    refused(&[&MAIL, &again], "p sent m key=1 keyed=no asks=yes");
    // Nobody has asked.
    let dated = ["+13", FETCHED[0], "p call-dated key=1 lease=13000"];
    refused(&[&MAIL, &dated], "p call-dated m key=1 lease=13000");
    let there = ["+13", FETCHED[0], "p asked key=1 reply=there", "p call-dated key=1 lease=13000"];
    refused(&[&MAIL, &there], "p call-dated m key=1 lease=13000");
    // It had begun, so that its key is not unused.
    let unused = ["+13", FETCHED[0], "p call-snoozed key=1 unused=yes"];
    refused(&[&MAIL, &unused], "p call-snoozed m key=1 unused=yes");
}

#[test]
fn an_operator_who_resolves_a_call_that_goes_on_is_refused() {
    refused(&[&FETCHED, &CALLED[..1], &["- resolved by=call"]], "- resolved m by=call");
    refused(&[&FETCHED, &CALLED[..1], &["- call-discarded"]], "- call-discarded m");
    refused(&[&MAIL, &["- call-replayed"]], "- call-replayed m");
}
