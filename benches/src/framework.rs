//! The time that idem itself takes per message, in addition to that of the database and the broker.

use std::fmt;

use anyhow::Result;
use nix::sys::resource::UsageWho;

use crate::idle::{numbers, run};
use crate::machine::used;

/// The results.
#[derive(Debug)]
pub(crate) struct Framework {
    /// Nanoseconds of CPU time per message, by concurrency: the minimum of the repetitions, because disturbances only
    /// add time.
    pub(crate) nanos: Vec<(usize, f64)>,
    /// Allocations per message, counted by a separate program.
    pub(crate) allocations: Option<f64>,
}

const REPETITIONS: usize = 5;

/// The limits per message: nanoseconds, and allocations: the delivery, its decoded form and the future of its handler, and
/// some that are rarer.
const MOST: (f64, f64) = (700.0, 3.5);

/// The number of messages in flight whose processor time is judged. With one, tasks are also scheduled and woken for each
/// message, which is reported and not judged.
const IN_FLIGHT: usize = 16;

impl Framework {
    /// Returns the judged nanoseconds of a message.
    pub(crate) fn judged(&self) -> Option<f64> {
        self.nanos.iter().find(|(in_flight, _)| *in_flight == IN_FLIGHT).map(|(_, nanos)| *nanos)
    }

    /// Returns whether idem stays within the limits per message with the default settings.
    pub(crate) fn is_lean(&self) -> bool {
        self.judged().is_some_and(|nanos| nanos <= MOST.0) && self.allocations.is_some_and(|number| number <= MOST.1)
    }
}

/// Runs the measurement on one thread. `messages` is the number of messages per repetition.
pub(crate) async fn measure(messages: usize) -> Result<Framework> {
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut nanos = Vec::new();
        for in_flight in [1, IN_FLIGHT] {
            let mut times = Vec::new();
            for _ in 0..REPETITIONS {
                // This thread does all the work: other load on the machine does not count.
                let queue = numbers(messages);
                let before = used(UsageWho::RUSAGE_THREAD)?;
                runtime.block_on(run(in_flight, queue))?;
                times.push((used(UsageWho::RUSAGE_THREAD)? - before).as_secs_f64() * 1e9 / messages as f64);
            }
            nanos.push((in_flight, times.into_iter().fold(f64::INFINITY, f64::min)));
        }
        Ok(Framework { nanos, allocations: allocations() })
    })
    .await?
}

/// Returns the first word of the output of the allocation counter.
fn allocations() -> Option<f64> {
    let program = std::env::current_exe().ok()?.with_file_name("idem-bench-allocations");
    let ran = std::process::Command::new(program).output().ok()?;
    String::from_utf8(ran.stdout).ok()?.split_whitespace().next()?.parse().ok()
}

impl fmt::Display for Framework {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "framework alone, processor time of a message:")?;
        for (in_flight, nanos) in &self.nanos {
            write!(f, " {nanos:.0} ns with {in_flight} in flight,")?;
        }
        match self.allocations {
            Some(allocations) => write!(f, " {allocations:.1} allocations")?,
            None => write!(f, " the allocations could not be counted")?,
        }
        let (nanos, allocations) = MOST;
        let verdict = if self.is_lean() { "within" } else { "ABOVE" };
        write!(f, "\n{verdict} {nanos:.0} ns and {allocations:.1} allocations, with 16 in flight")
    }
}
