//! `cargo xtask mutants`: deliberate defects, each of which a named test must catch.
//!
//! The files in `xtask/mutants` list them by area. The defects are applied to a copy of the repository under `target/mutants`.

mod mutant;
mod presence;
mod trial;

use std::fmt;
use std::ops::Range;
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use clap::Args;

use crate::cargo::root;
use crate::services::Up;
use mutant::Mutant;
pub(crate) use presence::tests_exist;
use trial::{Verdict, Workshop};

/// After so many seconds with mutants, CI begins no further one.
const AFFORDABLE: u64 = 120;

/// CI begins no more of them, since it runs the test of each without a defect first.
const MOST: usize = 50;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Only the mutants whose names contain this. It may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Only one part of them, for example 3/12. All the parts together are all mutants.
    #[arg(long, conflicts_with = "only")]
    part: Option<Part>,
    /// Begin no further mutant after this many seconds with mutants; at least one runs.
    #[arg(long)]
    seconds: Option<u64>,
    /// The number of a commit, of which only some are tried: each commit tries others.
    #[arg(skip)]
    commit: Option<usize>,
    /// Only check that each mutant still applies to the code; this takes no time.
    #[arg(long)]
    check: bool,
}

impl Options {
    /// Returns the options that try those that the commit selects, within a time that CI can afford.
    pub(crate) fn of_commit() -> Result<Self> {
        Ok(Self { commit: Some(commit()?), seconds: Some(AFFORDABLE), ..Self::default() })
    }

    /// Returns the options that only check that each mutant still applies to the code.
    pub(crate) fn check() -> Self {
        Self { check: true, ..Self::default() }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut mutants = Mutant::all()?;
    let only = &options.only;
    mutants.retain(|mutant| only.is_empty() || only.iter().any(|only| mutant.name.contains(only)));
    if mutants.is_empty() {
        bail!("there is no such mutant in xtask/mutants");
    }
    check(&mutants)?;
    if options.check {
        return Ok(());
    }
    // Mutants whose builds have much in common are adjacent.
    mutants.sort_by(|a, b| (&a.suite, &a.file, &a.name).cmp(&(&b.suite, &b.file, &b.name)));
    if let Some(part) = options.part {
        mutants = mutants.drain(part.places(mutants.len())).collect();
        eprintln!("\npart {part} of the mutants: {} of them", mutants.len());
    }
    if let Some(commit) = options.commit {
        let first = commit % mutants.len();
        mutants.rotate_left(first);
        mutants.truncate(MOST);
    }
    idem_services::prepare()?;
    let servers = Up::new()?;
    let workshop = Workshop::new(servers.env.clone())?;
    let (mut spent, mut verdicts) = (Duration::ZERO, Vec::new());
    'all: for mutants in mutants.chunk_by(|one, next| one.suite == next.suite) {
        for (place, mutant) in mutants.iter().enumerate() {
            let is_late = options.seconds.is_some_and(|seconds| spent.as_secs() >= seconds);
            if is_late && !verdicts.is_empty() {
                break 'all;
            }
            if place == 0 {
                // Not counted: it takes as long as what was built before lets it.
                workshop.check_sound(&mutant.suite, mutants)?;
            }
            eprintln!("\n{}: {}", mutant.name, mutant.proves);
            let began = Instant::now();
            let verdict = workshop.judge(mutant)?;
            spent += began.elapsed();
            eprintln!("{}: {verdict} ({:.0} s)", mutant.name, began.elapsed().as_secs_f64());
            verdicts.push((mutant, verdict));
        }
    }
    report(&verdicts, mutants.len() - verdicts.len())
}

/// Checks all mutants against the code. The error lists each mutant that does not apply.
fn check(mutants: &[Mutant]) -> Result<()> {
    let outdated = mutants.iter().filter_map(|mutant| mutant.applied(&root()).err());
    let outdated: Vec<String> = outdated.map(|error| format!("{error:#}")).collect();
    if !outdated.is_empty() {
        bail!("the code has moved on, and these must follow:\n{}", outdated.join("\n"));
    }
    Ok(())
}

/// Returns a number that depends on the commit that is checked out only.
fn commit() -> Result<usize> {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output().context("cannot run git")?;
    ensure!(git.status.success(), "git rev-parse HEAD failed: {}", String::from_utf8_lossy(&git.stderr));
    let hash = String::from_utf8_lossy(&git.stdout).into_owned();
    let first = hash.get(..15).context("git rev-parse HEAD named no commit")?;
    usize::from_str_radix(first, 16).with_context(|| format!("git rev-parse HEAD said {hash:?}"))
}

/// Prints the totals. Fails unless all mutants that were tried were caught.
fn report(verdicts: &[(&Mutant, Verdict)], untried: usize) -> Result<()> {
    let missed = verdicts.iter().filter(|(_, verdict)| *verdict != Verdict::Caught);
    let missed: Vec<_> =
        missed.map(|(mutant, verdict)| format!("{}: {verdict}, {}", mutant.name, mutant.test)).collect();
    let caught = verdicts.len() - missed.len();
    println!("\n{caught} mutants were caught, {} not, and {untried} were not tried", missed.len());
    ensure!(missed.is_empty(), "these mutants were not caught:\n{}", missed.join("\n"));
    Ok(())
}

/// One of several parts that have about the same size. Each mutant belongs to exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// From 1.
    number: usize,
    of: usize,
}

impl Part {
    /// Returns the places of its mutants in a list of this length.
    pub(crate) fn places(self, length: usize) -> Range<usize> {
        (self.number - 1) * length / self.of..self.number * length / self.of
    }
}

impl FromStr for Part {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (number, of) = text.split_once('/').context("a part is written K/N, as in 3/12")?;
        let part = Self { number: number.parse()?, of: of.parse()? };
        ensure!((1..=part.of).contains(&part.number), "the parts of {of} are 1/{of} to {of}/{of}");
        Ok(part)
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_is_in_exactly_one_part_and_the_parts_are_of_one_size() -> Result<()> {
        for length in [1, 11, 12, 81, 100] {
            let parts = (1..=12).map(|number| Ok(format!("{number}/12").parse::<Part>()?.places(length)));
            let parts = parts.collect::<Result<Vec<_>>>()?;
            assert_eq!(parts.iter().cloned().flatten().collect::<Vec<_>>(), (0..length).collect::<Vec<_>>());
            let size = length.div_ceil(12);
            assert!(parts.iter().all(|part| part.len() == size || part.len() + 1 == size));
        }
        Ok(())
    }

    #[test]
    fn a_part_that_does_not_exist_is_refused() {
        for text in ["0/12", "13/12", "1/0", "3", "a/b"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }
}
