//! Signals from the demo to all workers, as files in their directory: hold your work, and end between commit and ack.
//!
//! Without a hold, whether a planned kill finds a worker with work in hand depends on the speed of the machine: a batch
//! of all remaining messages takes milliseconds.

use std::fs::{File, remove_file};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long a worker waits for the demo at most. Together with its work, this is less than the handler timeout.
const LONGEST: Duration = Duration::from_secs(1);
const ROUND: Duration = Duration::from_millis(5);

/// The demo's side.
#[derive(Debug)]
pub(crate) struct Signals {
    dir: PathBuf,
    /// The number of the last hold.
    number: u64,
}

impl Signals {
    /// Returns the signals to the workers that write to this directory.
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), number: 0 }
    }

    /// Lets each worker keep the work that it begins or is about to ack in hand, for a limited time.
    pub(crate) fn hold(&mut self) -> Result<()> {
        self.number += 1;
        // Renamed, so that a worker never reads half a number.
        let draft = self.dir.join("hold-draft");
        std::fs::write(&draft, self.number.to_string()).context("cannot write a signal")?;
        std::fs::rename(&draft, hold(&self.dir)).context("cannot write a signal")
    }

    /// Ends the hold, if there is one.
    pub(crate) fn release(&self) -> Result<()> {
        match remove_file(hold(&self.dir)) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("cannot remove a signal"),
            _ => Ok(()),
        }
    }

    /// Lets the first worker that is about to ack after a commit end itself instead.
    pub(crate) fn end_one(&self) -> Result<()> {
        File::create(end(&self.dir)).map(drop).context("cannot write a signal")
    }

    /// Returns whether no worker has taken the signal to end itself yet.
    pub(crate) fn is_end_pending(&self) -> bool {
        end(&self.dir).exists()
    }
}

/// A worker's side.
#[derive(Debug, Clone)]
pub(crate) struct Signalled {
    dir: PathBuf,
    /// The number of the last hold, and when this process first saw it.
    seen: Arc<Mutex<Option<(u64, Instant)>>>,
}

impl Signalled {
    pub(crate) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), seen: Arc::default() }
    }

    /// Waits as long as the demo holds the work of this process.
    pub(crate) async fn wait(&self) {
        while self.is_held() {
            tokio::time::sleep(ROUND).await;
        }
    }

    fn is_held(&self) -> bool {
        let Ok(number) = std::fs::read_to_string(hold(&self.dir)) else { return false };
        let Ok(number) = number.parse() else { return false };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((last, since)) if last == number => since.elapsed() < LONGEST,
            _ => {
                *seen = Some((number, Instant::now()));
                true
            }
        }
    }

    /// Returns whether this process must end itself now. Only one process gets this answer to a signal.
    pub(crate) fn take_end(&self) -> bool {
        remove_file(end(&self.dir)).is_ok()
    }
}

fn hold(dir: &Path) -> PathBuf {
    dir.join("hold")
}

fn end(dir: &Path) -> PathBuf {
    dir.join("end-one")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_hold_ends_by_itself_and_a_signal_to_end_is_for_one_process() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let mut signals = Signals::new(dir.path());
        let workers = [Signalled::new(dir.path()), Signalled::new(dir.path())];
        let start = Instant::now();
        signals.hold()?;
        assert!(workers.iter().all(Signalled::is_held));
        workers[0].wait().await;
        assert!(start.elapsed() >= LONGEST);
        signals.hold()?;
        assert!(workers[0].is_held());
        signals.release()?;
        assert!(!workers[0].is_held());

        signals.end_one()?;
        assert!(signals.is_end_pending());
        assert_eq!(workers.iter().filter(|worker| worker.take_end()).count(), 1);
        assert!(!signals.is_end_pending());
        Ok(())
    }
}
