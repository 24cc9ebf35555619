//! Whether the test of each mutant exists, which takes no build: CI tries few mutants, and a test that was renamed would
//! only be missed by a run of all.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, bail};

use super::mutant::Mutant;
use crate::cargo::Program;

/// The names of tests by the name of their program.
type Tests = HashMap<String, HashSet<String>>;

/// Fails unless the test of each mutant is in one of these programs of the whole workspace, under its full name.
pub(crate) fn tests_exist(programs: &[Program]) -> Result<()> {
    let absent = absent(Mutant::all()?.iter(), programs)?;
    if !absent.is_empty() {
        bail!("these tests of mutants do not exist:\n{}", absent.join("\n"));
    }
    Ok(())
}

/// Returns a line for each of these mutants whose test is in none of these programs.
pub(super) fn absent<'a>(mutants: impl Iterator<Item = &'a Mutant>, programs: &[Program]) -> Result<Vec<String>> {
    let mut tests = Tests::new();
    for program in programs {
        let name = program.executable.file_name().context("cargo named no executable")?.to_string_lossy();
        let listed = program.command(&[]).args(["--list", "--format=terse"]).output();
        let listed = listed.with_context(|| format!("cannot list the tests of {name}"))?;
        tests.entry(target(&name).to_owned()).or_default().extend(names(&String::from_utf8_lossy(&listed.stdout)));
    }
    let absent = mutants.filter(|mutant| !exists(mutant, &tests));
    Ok(absent.map(|mutant| format!("{}: {} {}", mutant.name, mutant.suite.join(" "), mutant.test)).collect())
}

fn exists(mutant: &Mutant, tests: &Tests) -> bool {
    let is_in = |target: &str| tests.get(target).is_some_and(|tests| tests.contains(&mutant.test));
    match mutant.suite.as_slice() {
        [.., test, target] if test == "--test" => is_in(target),
        _ => tests.keys().any(|target| is_in(target)),
    }
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

    /// Returns a mutant that changes nothing.
    fn mutant(suite: &[&str], test: &str) -> Mutant {
        let text = format!("name = 'a'\nproves = 'b'\nfile = 'c'\nedits = []\nsuite = {suite:?}\ntest = {test:?}");
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn a_test_that_is_named_in_part_or_is_in_another_program_does_not_exist() {
        let tests = Tests::from([
            (target("stores-0123456789abcdef").to_owned(), names("a::b: test\na::c: bench\n").collect()),
            ("pipeline".to_owned(), names("a::d: test\n").collect()),
        ]);
        let exists = |suite, test| exists(&mutant(suite, test), &tests);
        assert!(exists(&["--test", "stores"], "a::b") && exists(&["--lib"], "a::d"));
        assert!(!exists(&["--test", "stores"], "b"), "in part");
        assert!(!exists(&["--test", "stores"], "a::c"), "no test");
        assert!(!exists(&["--test", "stores"], "a::d"), "in another program");
        assert!(!exists(&["--test", "gone"], "a::b"));
    }
}
