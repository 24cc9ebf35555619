//! Ends a test's private instance when the test's process ends, for any reason.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A shell that waits for the end of this process and then runs a script.
///
/// It reads from a pipe whose other end this process holds. The kernel closes that end when the process ends, even by
/// SIGKILL, when no destructor runs.
#[derive(Debug)]
pub(crate) struct Watcher(Child);

/// SIGCONT, because a frozen process handles no other signal; then ten seconds for PostgreSQL to end its backends.
pub(crate) const END_PROCESSES: &str = r#"
home=$1; shift
kill -QUIT "$@"; kill -CONT "$@"
for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 "$@" || break; sleep 1; done
kill -KILL "$@"; rm -rf "$home"
"#;

impl Watcher {
    /// Runs the script with these arguments when this process has ended.
    pub(crate) fn start(script: &str, args: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("read -r _\n{script}")).arg("watcher").args(args);
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self(shell.spawn().context("cannot run sh")?))
    }
}

/// Cancels the watcher.
impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
