//! Test programs, as cargo has built them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

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
}
