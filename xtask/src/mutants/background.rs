//! Work that goes on in the background of the builds.

use std::mem;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow};

/// How many trials run at once. A test that fails mostly waits for its timeout, and `cargo xtask test` runs four tests
/// at once on two cores, where no build takes one of them. Tests share servers as they do there: each has a schema, queue
/// or topic for itself, and one that needs a whole server starts a private one.
const AT_ONCE: usize = 3;

/// Work that goes on in the background, and its results.
pub(crate) struct Background<T> {
    running: Vec<JoinHandle<Result<T>>>,
    results: Vec<T>,
}

impl<T: Send + 'static> Background<T> {
    pub(crate) fn new() -> Self {
        Self { running: Vec::new(), results: Vec::new() }
    }

    /// Begins this work, after waiting until there is room for it. Fails if work that was begun earlier has failed.
    pub(crate) fn begin(&mut self, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<()> {
        self.wait_below(AT_ONCE)?;
        self.running.push(thread::spawn(work));
        Ok(())
    }

    /// Adds a result that needed no work in the background.
    pub(crate) fn add(&mut self, result: T) {
        self.results.push(result);
    }

    /// Waits for all work. Returns the results in the order in which they came.
    pub(crate) fn end(mut self) -> Result<Vec<T>> {
        self.wait_below(1)?;
        Ok(mem::take(&mut self.results))
    }

    /// Waits until less work than this goes on.
    fn wait_below(&mut self, limit: usize) -> Result<()> {
        loop {
            let (ended, running) = mem::take(&mut self.running).into_iter().partition(JoinHandle::is_finished);
            self.running = running;
            for work in ended {
                let work: JoinHandle<Result<T>> = work;
                self.results.push(work.join().map_err(|_| anyhow!("a trial panicked"))??);
            }
            if self.running.len() < limit {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// After an error, the servers must not end below what still runs.
impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        for work in self.running.drain(..) {
            let _ = work.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn no_more_work_than_allowed_goes_on_at_once_and_each_result_comes() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut background = Background::new();
        for number in 0..12 {
            let (now, most) = (now.clone(), most.clone());
            let work = move || {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(number)
            };
            background.begin(work).unwrap();
        }
        let mut results = background.end().unwrap();
        results.sort_unstable();
        assert_eq!(results, (0..12).collect::<Vec<_>>());
        assert!((2..=AT_ONCE).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    }

    #[test]
    fn work_that_failed_is_an_error_of_what_follows() {
        let mut background = Background::<()>::new();
        background.begin(|| Err(anyhow!("the disk is full"))).unwrap();
        assert_eq!(background.end().unwrap_err().to_string(), "the disk is full");
    }
}
