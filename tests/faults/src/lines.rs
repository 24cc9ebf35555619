//! Counts log lines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Counts idem's log lines on this thread. A single-threaded runtime does all its work there.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Counts>>);

/// The number of lines by level, file and line.
type Counts = BTreeMap<(Level, &'static str, u32), usize>;

impl Lines {
    /// Counts until the guard is dropped.
    pub fn count() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let subscriber = tracing_subscriber::registry().with(lines.clone().with_filter(LevelFilter::DEBUG));
        (lines, idem_conformance::subscribe(subscriber))
    }

    /// How many lines had this level or a more severe one.
    pub fn at_least(&self, level: Level) -> usize {
        self.0.lock().unwrap().iter().filter(|((of, ..), _)| *of <= level).map(|(_, count)| count).sum()
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let meta = event.metadata();
        if meta.target().starts_with("idem") {
            let place = (*meta.level(), meta.file().unwrap_or_default(), meta.line().unwrap_or_default());
            *self.0.lock().unwrap().entry(place).or_default() += 1;
        }
    }
}

/// Writes how many lines each source line logged.
impl std::fmt::Display for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for ((level, file, line), count) in &*self.0.lock().unwrap() {
            writeln!(f, "{count:6} {level} {file}:{line}")?;
        }
        Ok(())
    }
}
