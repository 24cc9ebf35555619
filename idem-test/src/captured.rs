//! Captures log output as text. The crate tracing-test does not suffice: it installs one global subscriber for all tests
//! of a process, which by default records only the events of the test's crate, and these tests read those of idem.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use tracing::Subscriber;

/// The log output so far. [`Display`](fmt::Display) writes it. [`captured`] has an example.
#[derive(Debug, Clone, Default)]
pub struct Captured(Arc<Mutex<Vec<u8>>>);

/// Returns the captured text and the subscriber that writes it.
///
/// ```
/// let (text, subscriber) = idem_test::captured();
/// tracing::subscriber::with_default(subscriber, || tracing::warn!("low on disk"));
/// assert!(text.to_string().contains("low on disk"));
/// ```
pub fn captured() -> (Captured, impl Subscriber + Send + Sync) {
    let text = Captured::default();
    let writer = text.clone();
    (text, tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish())
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
