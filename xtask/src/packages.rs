//! `cargo xtask demo`: kills workers, injects server faults, and prints a ledger.

use std::thread;

use anyhow::{Result, anyhow};

use crate::cargo::{cargo, run, run_built};

/// Runs the demo. The demo is a separate program, so that the other chores do not build idem. It is a release build,
/// because it reports its throughput. It starts separate servers, which it freezes and crashes.
pub(crate) fn demo(args: &[String]) -> Result<()> {
    idem_services::tools()?;
    idem_services::prepare()?;
    run(cargo(["run", "--release", "--package", "idem-demo", "--"]).args(args))
}

/// Runs the campaign with a few messages in each mode, on all brokers at once: a run takes about 30 seconds, most of which
/// it waits.
pub(crate) fn small() -> Result<()> {
    idem_services::prepare()?;
    // In the build profile of the tests, so that little is rebuilt.
    run(&mut cargo(["build", "--workspace", "--all-features", "--bin", "idem-demo"]))?;
    thread::scope(|scope| {
        let start = |broker| scope.spawn(move || small_run(&["--all", "--small", "--only", broker]));
        let brokers = ["rabbitmq", "nats", "kafka"].map(start);
        brokers.into_iter().try_for_each(|broker| broker.join().map_err(|_| anyhow!("the demo panicked"))?)
    })
}

/// Runs the demo that [`small`] has built.
pub(crate) fn small_run(args: &[&str]) -> Result<()> {
    run_built("idem-demo", args)
}
