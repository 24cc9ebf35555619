//! Long runs that begin together, whichever test comes first: only as many tests run at once as there are processors.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::thread::JoinHandle;

/// The threads of these runs, by name; each returns its report.
pub struct Threads(Mutex<BTreeMap<&'static str, JoinHandle<String>>>);

impl Threads {
    /// Starts a thread for each run.
    pub fn start<F: FnOnce() -> String + Send + 'static>(runs: impl IntoIterator<Item = (&'static str, F)>) -> Self {
        let begin =
            |(name, run): (&'static str, F)| (name, std::thread::Builder::new().name(name.into()).spawn(run).unwrap());
        Self(Mutex::new(runs.into_iter().map(begin).collect()))
    }

    /// Waits for this run and prints its report, or panics as the run did.
    pub fn join(&self, name: &str) {
        let run = self.0.lock().unwrap().remove(name).unwrap();
        // Output of that thread is captured by the test that started it, so it is printed again here.
        match run.join() {
            Ok(report) => println!("{report}"),
            Err(panic) => match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
                (Some(text), _) => panic!("{text}"),
                (_, Some(text)) => panic!("{text}"),
                _ => resume_unwind(panic),
            },
        }
    }
}
