//! `cargo xtask mutants`: deliberate defects, each of which a named test must catch.
//!
//! The files in `xtask/mutants` list them by area. The defects are applied to a copy of the repository under `target/mutants`.

mod background;
mod bound;
mod mutant;
mod part;
mod presence;
mod sound;
mod trial;
mod verdict;
mod workshop;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::root;
use crate::services::Up;
use background::Background;
use mutant::Mutant;
use part::{Part, commit};
pub(crate) use presence::tests_exist;
use sound::sound;
use trial::{PATIENCE, Results};
use verdict::Verdict;
use workshop::Workshop;

/// A test hangs if it takes five times as long as without a defect, and at least this long.
const SHORTEST: Duration = Duration::from_secs(60);
/// After this long with mutants, CI begins no further one.
const AFFORDABLE: Duration = Duration::from_secs(120);

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
    /// The place in the part to begin at: with little time, each commit tries others.
    #[arg(skip)]
    begin: usize,
    /// Only check that each mutant still applies to the code; this takes no time.
    #[arg(long)]
    check: bool,
    /// Leave the servers running.
    #[arg(long)]
    keep: bool,
}

impl Options {
    /// Returns the options that run the part for this commit, within a time that CI can afford.
    pub(crate) fn of_commit() -> Result<Self> {
        let seconds = Some(AFFORDABLE.as_secs());
        Ok(Self { part: Some(Part::of_commit()?), seconds, begin: begin()?, ..Self::default() })
    }

    /// Returns the options that only check that each mutant still applies to the code.
    pub(crate) fn check() -> Self {
        Self { check: true, ..Self::default() }
    }
}

/// Returns a number for the place at which this commit begins.
fn begin() -> Result<usize> {
    Ok(usize::try_from(commit()? / 1000 % 1000)?)
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
    mutants.sort_by(|a, b| (a.suite(), &a.file, &a.name).cmp(&(b.suite(), &b.file, &b.name)));
    if let Some(part) = options.part {
        mutants = mutants.drain(part.places(mutants.len())).collect();
        let begin = options.begin % mutants.len().max(1);
        mutants.rotate_left(begin);
        eprintln!("\npart {part} of the mutants: {} of them", mutants.len());
    }
    idem_services::prepare()?;
    idem_services::pooler()?;
    let servers = Up::new(options.keep)?;
    let workshop = Workshop::new(servers.env.clone())?;
    let times = sound(&workshop, &mutants)?;
    report(&verdicts(&workshop, &mutants, &times, options.seconds)?)
}

/// Tries the mutants, in their order: builds one after another, and runs the tests of those that are built in the
/// background. Returns the verdicts in the order of the mutants.
fn verdicts<'a>(
    workshop: &Workshop,
    mutants: &'a [Mutant],
    times: &HashMap<String, Duration>,
    seconds: Option<u64>,
) -> Result<Vec<(&'a Mutant, Verdict)>> {
    // The first build depends on what was built before.
    let start = Instant::now();
    let mut background = Background::new();
    for (place, mutant) in mutants.iter().enumerate() {
        if place > 0 && seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds) {
            background.add((place, Verdict::Untried));
            continue;
        }
        eprintln!("\n{}: {}", mutant.name, mutant.proves);
        let (name, test) = (mutant.name.clone(), mutant.test.clone());
        let began = Instant::now();
        let tell = move |verdict| {
            eprintln!("{name}: {verdict} ({:.0} s)", began.elapsed().as_secs_f64());
            (place, verdict)
        };
        let patience = times.get(&test).map_or(PATIENCE, |time| (*time * 5).max(SHORTEST)).min(PATIENCE);
        let work =
            move |mut results: Results| tell(results.remove(&test).map_or(Verdict::Absent, |(verdict, _)| verdict));
        workshop.try_with(Some(mutant), &mutant.suite(), &[&mutant.test], patience, &mut background, work)?;
    }
    let mut verdicts = background.end()?;
    verdicts.sort_by_key(|(place, _)| *place);
    Ok(verdicts.into_iter().map(|(place, verdict)| (&mutants[place], verdict)).collect())
}

/// Checks all mutants against the code. The error lists each mutant that does not apply.
fn check(mutants: &[Mutant]) -> Result<()> {
    let unfit = mutants.iter().filter_map(|mutant| mutant.applied(&root()).err());
    let unfit: Vec<String> = unfit.map(|error| format!("{error:#}")).collect();
    if !unfit.is_empty() {
        bail!("the code has moved on, and these must follow:\n{}", unfit.join("\n"));
    }
    Ok(())
}

/// Prints the table. Fails unless all mutants that were tried were caught.
fn report(verdicts: &[(&Mutant, Verdict)]) -> Result<()> {
    let width = |text: fn(&Mutant) -> &str| verdicts.iter().map(|(mutant, _)| text(mutant).len()).max().unwrap_or(0);
    let (names, tests) = (width(|mutant| &mutant.name), width(|mutant| &mutant.test));
    println!("\n{:names$}  {:tests$}  verdict", "mutant", "test");
    for (Mutant { name, test, .. }, verdict) in verdicts {
        println!("{name:names$}  {test:tests$}  {verdict}");
    }
    let untried = verdicts.iter().filter(|(_, verdict)| *verdict == Verdict::Untried).count();
    let caught = verdicts.iter().filter(|(_, verdict)| verdict.is_caught()).count();
    let left = verdicts.len() - caught - untried;
    println!("\n{} mutants, {caught} caught, {left} not, {untried} not tried", verdicts.len());
    if left > 0 {
        bail!("{left} of the mutants were not caught");
    }
    Ok(())
}
