//! The control: the named tests pass without a defect.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Result, bail};

use super::background::Background;
use super::mutant::Mutant;
use super::trial::PATIENCE;
use super::verdict::Verdict;
use super::workshop::Workshop;

/// Checks that each named test exists and passes without a defect. Returns how long each test took, rounded up a
/// little. Each suite runs once, beside the builds of others as with a defect: a test that fails because of the load
/// fails here too.
pub(crate) fn sound(workshop: &Workshop, mutants: &[Mutant]) -> Result<HashMap<String, Duration>> {
    eprintln!("\nwithout a defect");
    let mut suites = BTreeMap::<_, Vec<&str>>::new();
    for mutant in mutants {
        suites.entry(mutant.suite()).or_default().push(&mutant.test);
    }
    let mut background = Background::new();
    for (suite, mut tests) in suites {
        tests.sort_unstable();
        tests.dedup();
        let name = suite.join(" ");
        workshop.try_with(None, &suite, &tests, PATIENCE, &mut background, move |results| (name, results))?;
    }
    let (mut times, mut wrong) = (HashMap::new(), Vec::new());
    for (suite, results) in background.end()? {
        for (test, (verdict, time)) in results {
            match verdict {
                Verdict::Survived => _ = times.insert(test, time),
                Verdict::Absent => wrong.push(format!("there is no test {test} in cargo test {suite}")),
                verdict => wrong.push(format!("{test} does not pass without a defect either: {verdict}")),
            }
        }
    }
    if !wrong.is_empty() {
        wrong.sort_unstable();
        bail!("{}", wrong.join("\n"));
    }
    Ok(times)
}
