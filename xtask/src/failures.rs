//! The failures in the output of a test program, short enough to be repeated as the last lines of a long log.

/// The lines of a panic that are shown: where it was, and its message.
const PANIC: usize = 6;
/// The lines that are shown of a program that ended before it named the tests that failed.
const END: usize = 20;

/// Returns each failed test with its panic, or the last lines of a program that did not name any.
pub(crate) fn failures(output: &str) -> String {
    let mut shown = Vec::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) else {
            continue;
        };
        shown.push(format!("  {name}"));
        let section = lines.clone().take_while(|line| !line.starts_with("---- ") && *line != "failures:");
        let panic = section.skip_while(|line| !line.contains("panicked at ")).take(PANIC);
        shown.extend(panic.map(|line| format!("    {line}")));
    }
    if shown.is_empty() {
        let lines: Vec<_> = output.lines().collect();
        shown.extend(lines[lines.len().saturating_sub(END)..].iter().map(|line| format!("  {line}")));
    }
    shown.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failed_test_is_shown_with_its_panic_and_without_its_log() {
        let output = "running 3 tests\ntest a ... FAILED\n\nfailures:\n\n---- a stdout ----\na log line\n\nthread 'a' (7) panicked at \
                      src/a.rs:1:2:\nleft and right\n\n---- b stdout ----\nno panic\n\nfailures:\n    a\n    b\n";
        assert_eq!(
            failures(output),
            "  a\n    thread 'a' (7) panicked at src/a.rs:1:2:\n    left and right\n    \n  b"
        );
    }

    #[test]
    fn the_end_of_a_program_that_names_no_test_is_shown() {
        let output: String = (0..30).map(|line| format!("line {line}\n")).collect();
        let shown = failures(&output);
        assert_eq!((shown.lines().count(), shown.lines().next()), (END, Some("  line 10")));
    }
}
