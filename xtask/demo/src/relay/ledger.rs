//! The totals in one line.

use std::fmt;
use std::time::Duration;

use super::judge::Verdict;
use crate::ledger::{Done, check_disruptions};

/// How many deviations are listed.
const LISTED: usize = 20;

/// The outcome of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    verdict: Verdict,
    /// Copies that the second consumer has recognized.
    copies: u64,
    /// Calls of the sink.
    published: u64,
    deaths: u64,
    before_delete: u64,
    faults: u64,
    took: Duration,
    wrong: Vec<String>,
}

impl Ledger {
    pub(super) fn new(verdict: Verdict, copies: u64, published: u64, done: &Done<'_>) -> Self {
        let mut wrong = verdict.deviations();
        // A confirmed message is published again if its relay dies before it has deleted it.
        check_disruptions(done, |_| 1, |holds, text| wrong.extend((!holds).then_some(text)));
        let kills = &done.kills.done;
        Self {
            verdict,
            copies,
            published,
            deaths: kills.len() as u64,
            before_delete: kills.iter().filter(|kill| kill.before_ack.is_some()).count() as u64,
            faults: done.faults.done.len() as u64,
            took: done.took,
            wrong,
        }
    }

    pub(super) fn is_right(&self) -> bool {
        self.wrong.is_empty()
    }

    /// Prints the deviations.
    pub(super) fn tell(&self) {
        self.wrong.iter().take(LISTED).for_each(|text| println!("    {text}"));
        if self.wrong.len() > LISTED {
            println!("    and {} more", self.wrong.len() - LISTED);
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict { events, staged, relayed, lost, doubled, disordered, dead, .. } = self.verdict;
        write!(
            f,
            "{events} events, {staged} staged, {relayed} relayed in {} calls, {} copies seen by the second consumer, \
             lost {lost}, doubled {doubled}, out of order within a key {disordered}, dead {dead}, {} relay deaths \
             ({} between confirm and delete), {} server faults, {:.0} s{}",
            self.published,
            self.copies,
            self.deaths,
            self.before_delete,
            self.faults,
            self.took.as_secs_f64(),
            if self.is_right() { "" } else { ": WRONG" },
        )
    }
}
