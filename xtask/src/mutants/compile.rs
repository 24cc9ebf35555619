//! `cargo xtask mutants --compile`: finds the mutants that no longer compile, with many of them in each `cargo check`.
//!
//! CI builds few mutants, and the text of one can still occur in code with which it no longer compiles. For mutants in
//! `src`, only libraries and programs are checked: that one no longer fits its test is found when it is built.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::errors::Errors;
use super::group::groups;
use super::mutant::Mutant;
use super::workshop::Workshop;
use crate::cargo::root;

/// Checks the mutants in groups, beginning with the group at this place. After this many seconds, no further group
/// begins. The error lists each mutant that does not compile.
pub(crate) fn compile(mutants: &[Mutant], begin: usize, seconds: Option<u64>) -> Result<()> {
    let rust = rust(mutants);
    let mut groups = groups(&rust, read)?;
    let begin = begin % groups.len().max(1);
    groups.rotate_left(begin);
    let workshop = Workshop::new(Vec::new())?;
    let mut is_sound = false;
    let mut check = |mutants: &[&Mutant]| -> Result<Option<Errors>> {
        let errors = check_at_once(&workshop, mutants)?;
        if errors.is_some() && !is_sound {
            if let Some(errors) = check_at_once(&workshop, &[])? {
                bail!("the code does not compile without a mutant either:\n{}", errors.text);
            }
            is_sound = true;
        }
        Ok(errors)
    };
    let (start, mut broken, mut untried) = (Instant::now(), Vec::new(), 0);
    for (place, group) in groups.iter().enumerate() {
        if place > 0 && seconds.is_some_and(|seconds| start.elapsed().as_secs() >= seconds) {
            untried += group.len();
            continue;
        }
        broken.extend(search(group, &mut check)?);
    }
    if !broken.is_empty() {
        let broken = broken.iter().map(|(mutant, errors)| format!("{}:\n{}", mutant.name, errors.text));
        bail!("these mutants do not compile:\n{}", broken.collect::<Vec<_>>().join("\n"));
    }
    println!("\n{} mutants compile, {untried} not tried", rust.len() - untried);
    Ok(())
}

/// Returns the mutants that are compiled: SQL and documents are included as texts.
fn rust(mutants: &[Mutant]) -> Vec<&Mutant> {
    mutants.iter().filter(|mutant| mutant.file.ends_with(".rs")).collect()
}

/// Returns the mutants that do not compile alone. An error can hide others, so the mutants of files without an error
/// are checked again.
fn search<'a>(
    mutants: &[&'a Mutant],
    check: &mut impl FnMut(&[&Mutant]) -> Result<Option<Errors>>,
) -> Result<Vec<(&'a Mutant, Errors)>> {
    let Some(errors) = check(mutants)? else { return Ok(Vec::new()) };
    if let [mutant] = mutants {
        return Ok(vec![(*mutant, errors)]);
    }
    let is_named = |mutant: &&Mutant| errors.files.contains(&mutant.file);
    let (named, others): (Vec<&Mutant>, Vec<&Mutant>) = mutants.iter().copied().partition(is_named);
    let parts: Vec<&[&Mutant]> = if named.is_empty() {
        mutants.chunks(mutants.len().div_ceil(2)).collect()
    } else {
        named.chunks(1).chain([others.as_slice()]).collect()
    };
    let mut broken = Vec::new();
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        broken.extend(search(part, check)?);
    }
    if broken.is_empty() {
        eprintln!("each of these mutants compiles, but not all at once:\n{}", errors.text);
    }
    Ok(broken)
}

/// Checks the code with all of these mutants.
fn check_at_once(workshop: &Workshop, mutants: &[&Mutant]) -> Result<Option<Errors>> {
    match mutants {
        [] => eprintln!("\nno mutant"),
        [mutant] => eprintln!("\n{} alone", mutant.name),
        mutants => eprintln!("\n{} mutants at once", mutants.len()),
    }
    let began = Instant::now();
    let mut texts = BTreeMap::<&str, String>::new();
    for mutant in mutants {
        let text = texts.remove(mutant.file.as_str()).map_or_else(|| read(&mutant.file), Ok)?;
        texts.insert(&mutant.file, mutant.applied_to(text)?);
    }
    let is_in_src = |mutant: &&Mutant| mutant.file.split('/').any(|folder| folder == "src");
    // The many tests are checked only for mutants of tests, examples and benches.
    let targets: &[&str] = if mutants.iter().all(is_in_src) { &[] } else { &["--all-targets"] };
    let errors = workshop.check(&texts, targets)?.map(|messages| Errors::read(&messages));
    eprintln!("({:.0} s)", began.elapsed().as_secs_f64());
    let is_of_code = errors.as_ref().is_none_or(|errors| !errors.files.is_empty());
    ensure!(is_of_code, "cargo check failed without an error in the code");
    Ok(errors)
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(root().join(file)).with_context(|| format!("cannot read {file}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Searches mutants of the files 0 to 5. Those of `failing` do not compile at once, with an error in the file `named`.
    /// Returns the files of the mutants that are found, and how many checks there were.
    fn found(failing: &[&str], named: &str) -> (Vec<String>, usize) {
        let mutants: Vec<_> = (0..6).map(|file| Mutant::editing("", &file.to_string(), &[])).collect();
        let mut checks = 0;
        let mut check = |mutants: &[&Mutant]| -> Result<Option<Errors>> {
            checks += 1;
            let is_there = |file: &&str| mutants.iter().any(|mutant| mutant.file == *file);
            let errors = Errors { files: HashSet::from([named.to_owned()]), text: String::new() };
            Ok(failing.iter().all(is_there).then_some(errors))
        };
        let found = search(&mutants.iter().collect::<Vec<_>>(), &mut check).unwrap();
        (found.into_iter().map(|(mutant, _)| mutant.file.clone()).collect(), checks)
    }

    #[test]
    fn a_mutant_whose_file_has_the_error_is_checked_alone_and_all_others_at_once() {
        assert_eq!(found(&["4"], "4"), (vec!["4".to_owned()], 3));
    }

    #[test]
    fn mutants_that_do_not_compile_at_once_are_not_broken_if_each_compiles() {
        assert_eq!(found(&["1", "4"], "4"), (Vec::new(), 3));
        assert_eq!(found(&["1", "4"], "another").0, [""; 0]);
    }

    #[test]
    fn a_mutant_is_found_by_halves_if_the_error_is_in_the_file_of_another_or_of_none() {
        assert_eq!(found(&["4"], "0").0, ["4"]);
        assert_eq!(found(&["4"], "another").0, ["4"]);
    }

    #[test]
    fn all_mutants_of_rust_are_in_a_handful_of_groups() {
        let mutants = Mutant::all().unwrap();
        let rust = rust(&mutants);
        let groups = groups(&rust, read).unwrap();
        assert_eq!(groups.iter().map(Vec::len).sum::<usize>(), rust.len());
        assert!(groups.len() <= 6, "{} groups", groups.len());
    }
}
