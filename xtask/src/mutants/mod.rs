//! `cargo xtask mutants`: deliberate defects, each of which a named test must catch.
//!
//! A mutant is a file in `xtask/mutants`. The defects are made in a copy of the repository under `target/mutants`.

mod mutant;
mod tree;
mod trial;

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use clap::Args;

use crate::services::Up;
use mutant::Mutant;
use tree::Tree;
use trial::{Trial, Verdict};

#[derive(Args)]
pub(crate) struct Options {
    /// Only the mutants with this in their name.
    #[arg(long)]
    only: Option<String>,
    /// Leave the servers running.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut mutants = Mutant::all()?;
    mutants.retain(|mutant| options.only.as_ref().is_none_or(|only| mutant.name.contains(only)));
    if mutants.is_empty() {
        bail!("there is no such mutant in xtask/mutants");
    }
    let tree = Tree::copy()?;
    // All of them are looked at before the first takes its time.
    mutants.iter().try_for_each(|mutant| mutant.applied(&tree).map(drop))?;

    idem_services::prepare()?;
    let servers = Up::new(options.keep)?;
    let trial = Trial { tree: &tree, env: &servers.env };
    sound(&trial, &mutants)?;

    let mut verdicts = Vec::new();
    for mutant in &mutants {
        eprintln!("\n{}: {}", mutant.name, mutant.proves);
        tree.write(&mutant.file, &mutant.applied(&tree)?)?;
        let verdict = trial.run(mutant.suite(), &[&mutant.test]);
        tree.restore(&mutant.file)?;
        let verdict = verdict?.remove(&mutant.test).unwrap_or(Verdict::Absent);
        eprintln!("{}: {verdict}", mutant.name);
        verdicts.push((mutant, verdict));
    }
    report(&verdicts)
}

/// Checks that each named test exists and passes without a defect, one run for each suite.
fn sound(trial: &Trial<'_>, mutants: &[Mutant]) -> Result<()> {
    eprintln!("\nwithout a defect");
    let mut suites = BTreeMap::<_, Vec<&str>>::new();
    for mutant in mutants {
        suites.entry(mutant.suite()).or_default().push(&mutant.test);
    }
    for (suite, mut tests) in suites {
        tests.sort_unstable();
        tests.dedup();
        let verdicts = trial.run(suite, &tests)?;
        for test in tests {
            match verdicts.get(test) {
                Some(Verdict::Survived) => {}
                Some(Verdict::Absent) | None => bail!("there is no test {test} in cargo test {}", suite.join(" ")),
                Some(verdict) => bail!("{test} does not pass without a defect either: {verdict}"),
            }
        }
    }
    Ok(())
}

/// Prints the table. An error unless all were caught.
fn report(verdicts: &[(&Mutant, Verdict)]) -> Result<()> {
    let width = |text: fn(&Mutant) -> &str| verdicts.iter().map(|(mutant, _)| text(mutant).len()).max().unwrap_or(0);
    let (names, tests) = (width(|mutant| &mutant.name), width(|mutant| &mutant.test));
    println!("\n{:names$}  {:tests$}  verdict", "mutant", "test");
    for (Mutant { name, test, .. }, verdict) in verdicts {
        println!("{name:names$}  {test:tests$}  {verdict}");
    }
    let left = verdicts.iter().filter(|(_, verdict)| !verdict.is_caught()).count();
    println!("\n{} mutants, {} caught, {left} not", verdicts.len(), verdicts.len() - left);
    if left > 0 {
        bail!("{left} of the mutants were not caught");
    }
    Ok(())
}
