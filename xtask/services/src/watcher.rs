//! Ends a test's private instance when the test's process ends, for any reason.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A shell that waits for the end of this process and then ends what is left.
///
/// It reads from a pipe whose other end this process holds. The kernel closes that end when the process ends, even by
/// SIGKILL, when no destructor runs.
#[derive(Debug)]
pub(crate) struct Watcher(Child);

/// SIGCONT, because a frozen process handles no other signal; then ten seconds for PostgreSQL to end its backends. The
/// kernel may have given the number of a process that has ended to another one, which works elsewhere.
const END_PROCESSES: &str = r#"
home=$1; shift
ours() { for pid; do case $(readlink "/proc/$pid/cwd") in "$home" | "$home/"* | "$home "*) echo "$pid" ;; esac; done; }
kill -QUIT $(ours "$@"); kill -CONT $(ours "$@")
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -n "$(ours "$@")" ] || break; sleep 1; done
kill -KILL $(ours "$@"); rm -rf "$home"
"#;

impl Watcher {
    /// Ends these processes, if they work in this directory, and removes it when this process has ended.
    pub(crate) fn start(home: &Path, processes: &[i32]) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("read -r _\n{END_PROCESSES}")).arg("watcher").arg(home);
        shell.args(processes.iter().map(ToString::to_string));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_directory_are_ended() {
        let home = std::env::temp_dir().join(format!("idem-watcher-{}", std::process::id()));
        std::fs::create_dir_all(home.join("data")).unwrap();
        let sleep = |dir: &Path| Command::new("sleep").arg("600").current_dir(dir).spawn().unwrap();
        let (mut ours, mut other) = (sleep(&home.join("data")), sleep(&std::env::temp_dir()));
        let processes = [ours.id(), other.id()].map(|id| i32::try_from(id).unwrap());
        let mut watcher = Watcher::start(&home, &processes).unwrap();
        drop(watcher.0.stdin.take());
        assert!(!ours.wait().unwrap().success());
        watcher.0.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none() && !home.exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
