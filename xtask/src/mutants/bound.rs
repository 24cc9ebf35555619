//! Suites that need more than their own programs.

/// These suites run other programs and examples in cargo's target directory, or have cargo compile sources. The next build
/// would replace these below them.
const BOUND_TO_THE_BUILD: [&str; 4] = ["faults", "workers", "operator", "mistakes"];

/// Returns whether the next build may begin while the suite runs.
pub(crate) fn outlives_its_build(suite: &[&str]) -> bool {
    !suite.iter().any(|name| BOUND_TO_THE_BUILD.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_build_begins_while_tests_run_programs_of_the_last_one() {
        assert!(outlives_its_build(&["--lib"]));
        assert!(outlives_its_build(&["--test", "pipeline_sqlite"]));
        assert!(!outlives_its_build(&["--test", "faults"]));
    }
}
