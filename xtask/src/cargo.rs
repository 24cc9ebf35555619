//! Runs cargo and prints each command; the test programs that it has built, and the failures in their output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub(crate) use idem_services::root;

/// Returns `cargo <args>` in the root of the repository.
pub(crate) fn cargo<I: AsRef<str>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Variables that `cargo run` has set for this program must not reach the cargo that it starts: build scripts that
    // watch such a variable would run again each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command.current_dir(root());
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

/// Prints the command, and returns its arguments.
pub(crate) fn announce(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
    eprintln!("\n$ cargo {args}");
    args
}

/// Runs a program in the directory of development builds: cargo's own runs would select other features, and build again.
pub(crate) fn run_built(program: &str, args: &[&str]) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    eprintln!("\n$ {program} {}", args.join(" "));
    let status = Command::new(target.join("debug").join(program)).args(args).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} {} failed ({status})", args.join(" "));
    Ok(())
}

/// Prints the command, runs it with this terminal, then prints how long it took.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let args = announce(command);
    let began = Instant::now();
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo {args} failed ({status})");
    }
    eprintln!("({:.0} s)", began.elapsed().as_secs_f64());
    Ok(())
}

/// A test program.
pub(crate) struct Program {
    pub(crate) executable: PathBuf,
    /// The directory of its package, in which cargo runs it.
    pub(crate) package: PathBuf,
}

impl Program {
    /// Builds what this command of cargo would test. Returns its test programs, or `None` if they do not compile.
    pub(crate) fn build(test: &mut Command) -> Result<Option<Vec<Self>>> {
        test.args(["--no-run", "--message-format=json-render-diagnostics"]);
        let built = test.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        Ok(built.status.success().then(|| Self::named(&String::from_utf8_lossy(&built.stdout))))
    }

    /// Returns the test programs that cargo's messages name.
    fn named(messages: &str) -> Vec<Self> {
        let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let tests = messages.filter(|message| message["profile"]["test"] == true);
        let program = |message: Value| {
            let package = Path::new(message["manifest_path"].as_str()?).parent()?;
            Some(Self { executable: message["executable"].as_str()?.into(), package: package.to_owned() })
        };
        tests.filter_map(program).collect()
    }

    /// Returns the command that runs the program as cargo does, by this program if one is given. The path of shared libraries,
    /// which the tests of macros need, is inherited: `cargo run` has set it for this program.
    pub(crate) fn command(&self, runner: &[&str]) -> Command {
        let mut words = runner.iter().map(OsStr::new).chain([self.executable.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
            command.env_remove(name);
        }
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

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
    fn only_test_programs_are_taken_from_the_messages_of_cargo() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":false},"executable":null}"#;
        let binary = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":false},"executable":"/t/b"}"#;
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":true},"executable":"/t/deps/b-1"}"#;
        let end = r#"{"reason":"build-finished","success":true}"#;
        let programs = Program::named(&[library, binary, test, end].join("\n"));
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].executable, Path::new("/t/deps/b-1"));
        assert_eq!(programs[0].package, Path::new("/a"));
    }

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
