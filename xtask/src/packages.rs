//! Chores that run the program of another package: the demo, the measurements, the model.

use std::fs;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow};

use crate::cargo::{cargo, root, run, run_built};

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
        let brokers = ["rabbitmq", "nats", "kafka", "sqs"].map(start);
        brokers.into_iter().try_for_each(|broker| broker.join().map_err(|_| anyhow!("the demo panicked"))?)
    })
}

/// Runs the demo that [`small`] has built.
pub(crate) fn small_run(args: &[&str]) -> Result<()> {
    run_built("idem-demo", args)
}

/// Runs the measurement as a release build. Exits with the exit code of the measurement.
pub(crate) fn measure(before: &[&str], args: &[String]) -> Result<()> {
    idem_services::tools()?;
    run(&mut cargo(["build", "--release", "--package", "idem-bench", "--bins"]))?;
    if args.first().is_some_and(|what| what == "operator") {
        // The measurement runs it as a person does.
        run(&mut cargo(["build", "--release", "--package", "idem-cli"]))?;
    }
    let mut bench = Command::new(root().join("target/release/idem-bench"));
    let status = bench.args(before).args(args).status().context("cannot run the measurement")?;
    std::process::exit(status.code().unwrap_or(1))
}

/// Has the test of the page in a browser keep its pictures: of each view, narrow and wide, light and dark.
pub(crate) fn screenshots() -> Result<()> {
    idem_services::tools()?;
    idem_services::chromium()?;
    let pictures = root().join("target/screenshots");
    fs::create_dir_all(&pictures).context("cannot create target/screenshots")?;
    let mut test = cargo(["test", "--workspace", "--all-features", "--test", "page", "browser::"]);
    run(test.env("IDEM_SCREENSHOTS", &pictures))?;
    fs::copy(pictures.join("overview-1400-light.png"), root().join("docs/page.png"))
        .context("cannot write docs/page.png")?;
    println!("{}", pictures.display());
    Ok(())
}

/// Prints one line for each world and each broken rule. The error is that a rule does not hold, or is not needed.
///
/// The arguments are those of the model: `--small` for worlds with fewer failures, as CI searches them, and `--traces` for
/// the shortest way to the violation of each broken rule.
pub(crate) fn search(args: &[String]) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--package", "idem-model", "--"]);
    run(command.args(args)).context("the model and the rules do not agree")
}
