//! Captures log output as text. The crate tracing-test does not suffice: it installs one global subscriber for all tests
//! of a process, which by default records only the events of the test's crate, and these tests read those of idem.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use tracing::subscriber::{DefaultGuard, NoSubscriber};
use tracing::{Dispatch, Subscriber};

/// Two subscribers that live as long as the process. While it has at most one, an event that is reached for the first
/// time asks the subscriber of its own thread alone, and the answer holds for all threads (`Rebuilder::JustOne` in
/// tracing-core 0.1.36, `callsite.rs`): a test in another thread that captures nothing would switch the event off here.
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::new())));

/// The log output so far. [`Display`](fmt::Display) writes it. [`captured`] has an example.
#[derive(Debug, Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<u8>>>);

/// Returns the captured text and the subscriber that writes it.
///
/// ```
/// let (text, subscriber) = idem_conformance::captured();
/// tracing::subscriber::with_default(subscriber, || tracing::warn!("low on disk"));
/// assert!(text.to_string().contains("low on disk"));
/// ```
pub fn captured() -> (Captured, impl Subscriber + Send + Sync) {
    LazyLock::force(&OTHERS);
    let text = Captured::default();
    let writer = text.clone();
    (text, tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish())
}

/// Makes this the subscriber of the calling thread until the guard is dropped. Unlike [`set_default`], it sees the events
/// that a thread without a subscriber reached first. [`captured`] does the same.
///
/// [`set_default`]: tracing::subscriber::set_default
pub fn subscribe(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    LazyLock::force(&OTHERS);
    tracing::subscriber::set_default(subscriber)
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Display for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
