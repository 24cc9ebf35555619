//! Whether the test of each mutant exists, which takes no build: CI tries few mutants, and a test that was renamed would
//! only be missed by a run of all.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};

use super::mutant::Mutant;
use crate::program::Program;

/// The names of tests by the name of their program.
type Tests = HashMap<String, HashSet<String>>;

/// Fails unless the test of each mutant is in one of these programs of the whole workspace, under its full name.
pub(crate) fn tests_exist(programs: &[Program]) -> Result<()> {
    let mut tests = Tests::new();
    for program in programs {
        let name = program.executable.file_name().context("cargo named no executable")?.to_string_lossy();
        let listed = program.command().args(["--list", "--format=terse"]).output();
        let listed = listed.with_context(|| format!("cannot list the tests of {name}"))?;
        tests.entry(target(&name).to_owned()).or_default().extend(names(&String::from_utf8_lossy(&listed.stdout)));
    }
    let absent = absent(&Mutant::all()?, &tests);
    if !absent.is_empty() {
        bail!("these tests of mutants do not exist:\n{}", absent.join("\n"));
    }
    Ok(())
}

fn absent(mutants: &[Mutant], tests: &Tests) -> Vec<String> {
    let is_in = |target: &str, mutant: &Mutant| tests.get(target).is_some_and(|tests| tests.contains(&mutant.test));
    let exists = |mutant: &&Mutant| match *mutant.suite() {
        ["--test", target] => is_in(target, mutant),
        _ => tests.keys().any(|target| is_in(target, mutant)),
    };
    let absent = mutants.iter().filter(|mutant| !exists(mutant));
    absent.map(|mutant| format!("{}: {} {}", mutant.name, mutant.suite().join(" "), mutant.test)).collect()
}

/// Cargo adds a hash to the name of the target.
fn target(executable: &str) -> &str {
    executable.rsplit_once('-').map_or(executable, |(target, _)| target)
}

fn names(listed: &str) -> impl Iterator<Item = String> {
    listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_is_named_in_part_or_is_in_another_program_does_not_exist() {
        let tests = Tests::from([
            (target("stores-0123456789abcdef").to_owned(), names("a::b: test\na::c: bench\n").collect()),
            ("pipeline".to_owned(), names("a::d: test\n").collect()),
        ]);
        let of = |suite, test| vec![Mutant::of(suite, test)];
        let exists = |suite, test| absent(&of(suite, test), &tests).is_empty();
        assert!(exists(&["--test", "stores"], "a::b") && exists(&["--lib"], "a::d"));
        assert!(!exists(&["--test", "stores"], "b"), "in part");
        assert!(!exists(&["--test", "stores"], "a::c"), "no test");
        assert!(!exists(&["--test", "stores"], "a::d"), "in another program");
        assert!(!exists(&["--test", "gone"], "a::b"));
    }
}
