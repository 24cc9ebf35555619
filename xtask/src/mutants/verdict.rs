//! The result of a named test, read from the output of the test harness.

use std::fmt;

/// The result of a named test for a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The test failed.
    Caught,
    /// The test ended its process, or did not end.
    Ended,
    /// The test passed.
    Survived,
    /// The test did not run.
    Absent,
    /// The mutant does not compile and proves nothing.
    Broken,
    /// There was no time left.
    Untried,
}

impl Verdict {
    pub(crate) fn is_caught(self) -> bool {
        matches!(self, Self::Caught | Self::Ended)
    }

    /// Derives the verdict from the lines of the test harness, `test <name> ... ok`. Several programs of a suite may have
    /// a test of this name: one that fails is enough. A test that aborts its process or hangs has no such line, or an
    /// incomplete one.
    pub(crate) fn read(said: &str, test: &str, in_time: bool) -> Self {
        let results: Vec<_> = results(said, test).collect();
        let count = |start| said.lines().filter(|line| line.starts_with(start)).count();
        let ended = !in_time || count("running ") > count("test result: ");
        match results.first() {
            _ if results.contains(&"FAILED") => Self::Caught,
            _ if ended => Self::Ended,
            Some(_) => Self::Survived,
            None => Self::Absent,
        }
    }
}

/// Returns how many programs have said how this test ended.
pub(crate) fn ends(said: &str, test: &str) -> usize {
    results(said, test).count()
}

/// Returns the complete results of this test, `ok` or `FAILED`, one for each program that has the test.
fn results<'a>(said: &'a str, test: &str) -> impl Iterator<Item = &'a str> {
    let lines =
        said.lines().filter_map(move |line| line.strip_prefix("test ")?.strip_prefix(test)?.strip_prefix(" ... "));
    lines.map(str::trim_end).filter(|result| !result.is_empty())
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caught => "caught",
            Self::Ended => "caught (the test hung or ended its process)",
            Self::Survived => "SURVIVED",
            Self::Absent => "ERROR: the test did not run",
            Self::Broken => "ERROR: it does not compile",
            Self::Untried => "not tried",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_from_the_line_of_the_test() {
        let said = "running 2 tests\ntest a_b ... FAILED\ntest a ... ok\n\ntest result: FAILED. 1 passed";
        assert_eq!(Verdict::read(said, "a", true), Verdict::Survived);
        assert_eq!(Verdict::read(said, "a_b", true), Verdict::Caught);
        assert_eq!(Verdict::read(said, "c", true), Verdict::Absent);
    }

    /// Each adapter has the suite `sink`, with the same tests.
    #[test]
    fn a_test_that_fails_in_one_of_several_programs_has_failed() {
        let passed = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed\n";
        let failed = "running 1 test\ntest a ... FAILED\n\ntest result: FAILED. 0 passed\n";
        let none = "running 0 tests\n\ntest result: ok. 0 passed\n";
        assert_eq!(Verdict::read(&[passed, failed, none].concat(), "a", true), Verdict::Caught);
        assert_eq!(Verdict::read(&[passed, none, passed].concat(), "a", true), Verdict::Survived);
        assert_eq!(Verdict::read(&[passed, "running 1 test\ntest a ... "].concat(), "a", true), Verdict::Ended);
        assert_eq!(Verdict::read(&[passed, "running 1 test\n"].concat(), "a", false), Verdict::Ended);
        assert_eq!((ends(&[passed, none, failed].concat(), "a"), ends(none, "a"), ends("test a ... ", "a")), (2, 0, 0));
    }

    #[test]
    fn a_test_that_ends_its_process_or_hangs_has_not_passed() {
        assert_eq!(Verdict::read("running 1 test\ntest a ... ", "a", true), Verdict::Ended);
        assert_eq!(Verdict::read("running 1 test\n", "a", true), Verdict::Ended);
        assert_eq!(Verdict::read("running 1 test\n", "a", false), Verdict::Ended);
    }

    #[test]
    fn a_test_that_does_not_exist_has_no_verdict() {
        let none = "running 0 tests\n\ntest result: ok. 0 passed";
        assert_eq!(Verdict::read(none, "a", true), Verdict::Absent);
    }
}
