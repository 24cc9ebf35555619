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

    /// Derives the verdict from the lines of the test harness, `test <name> ... ok`. A test that aborts its process or
    /// hangs has no such line, or an incomplete one.
    pub(crate) fn read(said: &str, test: &str, in_time: bool) -> Self {
        let line = line(said, test);
        let began = line.is_some() || said.contains("running 1 test") && !said.contains("test result: ok. 1 passed");
        match line {
            Some(line) if line.ends_with("FAILED") => Self::Caught,
            Some(line) if line.ends_with("... ok") => Self::Survived,
            _ if began || !in_time => Self::Ended,
            _ => Self::Absent,
        }
    }
}

/// Returns whether the test harness has said how this test ended.
pub(crate) fn has_ended(said: &str, test: &str) -> bool {
    line(said, test).is_some_and(|line| !line.ends_with("..."))
}

/// Returns the test harness's result line for this test, `... ok` or `... FAILED`.
fn line<'a>(said: &'a str, test: &str) -> Option<&'a str> {
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_prefix(test)?.strip_prefix(' '));
    lines.next().map(str::trim_end)
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
