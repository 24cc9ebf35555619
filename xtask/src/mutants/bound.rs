//! Suites that need more than their own programs.

/// These suites run other programs and examples in cargo's target directory, or have cargo compile sources. The next build
/// would replace these below them.
const BOUND_TO_THE_BUILD: [&str; 5] = ["faults", "workers", "operator", "stores", "ui"];

/// Returns whether the next build may begin while the suite runs.
pub(crate) fn outlives_its_build(suite: &[&str]) -> bool {
    !suite.iter().any(|name| BOUND_TO_THE_BUILD.contains(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;

    use super::*;
    use crate::cargo::root;
    use crate::imports::collect;

    #[test]
    fn each_suite_that_runs_other_programs_of_the_build_is_bound_to_it() {
        let mut files = Vec::new();
        for dir in ["tests", "idem-core/tests", "idem-conformance/tests", "idem-adapters"] {
            collect(&root().join(dir), &mut files).unwrap();
        }
        let marks = ["CARGO_BIN_EXE_", "ancestors().nth(2)", "TestCases", "Command::new(\"rustc\")"];
        let mut bound = HashSet::new();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            if marks.iter().any(|mark| text.contains(mark)) {
                let path = file.with_extension("").to_string_lossy().into_owned();
                let (_, inside) = path.rsplit_once("/tests/").unwrap();
                bound.insert(inside.split('/').next().unwrap().to_owned());
            }
        }
        assert_eq!(bound, BOUND_TO_THE_BUILD.map(str::to_owned).into());
    }

    #[test]
    fn no_build_begins_while_tests_run_programs_of_the_last_one() {
        assert!(outlives_its_build(&["--lib"]));
        assert!(outlives_its_build(&["--test", "pipeline_sqlite"]));
        assert!(!outlives_its_build(&["--test", "faults"]));
    }
}
