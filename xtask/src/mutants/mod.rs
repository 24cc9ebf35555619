//! `cargo xtask mutants`: deliberate defects, each of which a named test must catch.
//!
//! A mutant is a file in `xtask/mutants`. The defects are applied to a copy of the repository under `target/mutants`.

mod mutant;
mod part;
mod trial;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use crate::cargo::root;
use crate::services::Up;
use crate::tree::Tree;
use mutant::Mutant;
pub(crate) use part::{Part, commit};
use trial::{Trial, Verdict};

/// A test that runs longer than this hangs; a developer would notice that too.
const PATIENCE: Duration = Duration::from_secs(300);
/// A test hangs if it takes five times as long as without a defect, and at least this long.
const SHORTEST: Duration = Duration::from_secs(60);
/// After this long with mutants, CI begins no further one.
const AFFORDABLE: Duration = Duration::from_secs(120);

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Only the mutants whose names contain this.
    #[arg(long)]
    only: Option<String>,
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
        let begin = usize::try_from(commit()? / 1000 % 1000)?;
        Ok(Self { part: Some(Part::of_commit()?), seconds: Some(AFFORDABLE.as_secs()), begin, ..Self::default() })
    }

    /// Returns the options that only check that each mutant still applies to the code.
    pub(crate) fn check() -> Self {
        Self { check: true, ..Self::default() }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut mutants = Mutant::all()?;
    mutants.retain(|mutant| options.only.as_ref().is_none_or(|only| mutant.name.contains(only)));
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
    let tree = Tree::copy("mutants/tree")?;
    idem_services::prepare()?;
    idem_services::pooler()?;
    let servers = Up::new(options.keep)?;
    let trial = Trial { tree: &tree, env: &servers.env };
    let times = sound(&trial, &mutants)?;
    // From here: the first build depends on what was built before.
    let start = Instant::now();

    let mut verdicts = Vec::new();
    for mutant in &mutants {
        let is_late = options.seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds);
        if is_late && !verdicts.is_empty() {
            verdicts.push((mutant, Verdict::Untried));
            continue;
        }
        eprintln!("\n{}: {}", mutant.name, mutant.proves);
        let began = Instant::now();
        tree.write(&mutant.file, &mutant.applied(tree.path())?)?;
        let patience = times.get(&mutant.test).map_or(PATIENCE, |time| (*time * 5).max(SHORTEST));
        let verdict = trial.run(&mutant.suite(), &[&mutant.test], patience.min(PATIENCE));
        tree.restore(&mutant.file)?;
        let verdict = verdict?.remove(&mutant.test).map_or(Verdict::Absent, |(verdict, _)| verdict);
        eprintln!("{}: {verdict} ({:.0} s)", mutant.name, began.elapsed().as_secs_f64());
        verdicts.push((mutant, verdict));
    }
    report(&verdicts)
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

/// Checks that each named test exists and passes without a defect. Returns how long each test took, rounded up a
/// little. Each suite runs once.
fn sound(trial: &Trial<'_>, mutants: &[Mutant]) -> Result<HashMap<String, Duration>> {
    eprintln!("\nwithout a defect");
    let mut suites = BTreeMap::<_, Vec<&str>>::new();
    for mutant in mutants {
        suites.entry(mutant.suite()).or_default().push(&mutant.test);
    }
    let (mut times, mut wrong) = (HashMap::new(), Vec::new());
    for (suite, mut tests) in suites {
        tests.sort_unstable();
        tests.dedup();
        let mut verdicts = trial.run(&suite, &tests, PATIENCE)?;
        for test in tests {
            match verdicts.remove(test) {
                Some((Verdict::Survived, time)) => _ = times.insert(test.to_owned(), time),
                Some((Verdict::Absent, _)) | None => {
                    wrong.push(format!("there is no test {test} in cargo test {}", suite.join(" ")));
                }
                Some((verdict, _)) => wrong.push(format!("{test} does not pass without a defect either: {verdict}")),
            }
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(times)
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
