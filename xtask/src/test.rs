//! `cargo xtask test`: runs every test against real servers.

use std::{env, thread};

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, run, run_built};
use crate::services::Up;
use crate::suites;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Arguments for `cargo test`; then only those tests run.
    #[arg(last = true)]
    args: Vec<String>,
}

/// How many tests of one suite run at once, if the environment says so.
const THREADS: &str = "RUST_TEST_THREADS";

/// The examples that end by themselves.
const RUN: &[&str] = &[
    "quickstart",
    "hand_written",
    "events",
    "ordering",
    "batch",
    "dead_letters",
    "outbox",
    "crashes",
    "http",
    "avro",
    "request",
    "payments",
    "page",
];
/// The example that is a test.
const TESTED: &str = "testing";

/// Runs the tests and the examples, and these checks beside the tests that wait; or only the tests that the arguments name.
pub(crate) fn test(options: &Options, checks: impl FnOnce() -> Result<()>) -> Result<()> {
    idem_services::prepare()?;
    let servers = Up::new()?;
    let mut env = servers.env.clone();
    if env::var_os(THREADS).is_none() {
        // Tests wait for servers more than they compute.
        env.push((THREADS, (2 * thread::available_parallelism()?.get()).to_string()));
    }
    if options.args.is_empty() {
        return suites::run_all(&env, || examples().and_then(|()| checks()));
    }
    // One failure must not hide others.
    let mut tests = cargo(["test", "--all-features", "--no-fail-fast"]);
    if !options.args.iter().take_while(|arg| *arg != "--").any(|arg| names_package(arg)) {
        tests.arg("--workspace");
    }
    run(tests.args(&options.args).envs(env))
}

/// Runs the examples, which are built with the tests, without servers.
fn examples() -> Result<()> {
    run(&mut cargo(["test", "--workspace", "--all-features", "--example", TESTED]))?;
    for name in RUN {
        run_built(&format!("examples/{name}"), &[])?;
    }
    Ok(())
}

fn names_package(arg: &str) -> bool {
    arg.starts_with("-p") || arg.starts_with("--package") || arg.starts_with("--manifest-path")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::cargo::root;

    /// The examples that tests run, because they need a server, a signal or arguments.
    const RUN_BY_TESTS: &[(&str, &str)] = &[
        ("service", "tests/pipeline/tests/workers.rs"),
        ("rabbitmq", "tests/faults/tests/faults/example.rs"),
        ("ordering_rabbitmq", "tests/faults/tests/faults/example.rs"),
        ("nats", "tests/faults/tests/faults/example.rs"),
        ("kafka", "tests/faults/tests/faults/example.rs"),
        ("redis", "tests/faults/tests/faults/example.rs"),
    ];

    #[test]
    fn each_example_is_run_in_one_way() {
        let mut files = Vec::new();
        let directories = ["examples", "examples/services"].map(|path| fs::read_dir(root().join(path)).unwrap());
        for entry in directories.into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path.file_stem().unwrap().to_string_lossy().into_owned());
            }
        }
        let by_tests = RUN_BY_TESTS.iter().map(|(name, _)| name);
        let mut named: Vec<_> = RUN.iter().chain([&TESTED]).chain(by_tests).map(ToString::to_string).collect();
        files.sort();
        named.sort();
        assert_eq!(files, named, "the files on the left, the lists on the right");
        for (name, test) in RUN_BY_TESTS {
            assert!(fs::read_to_string(root().join(test)).is_ok(), "{test}, which runs {name}, is not there");
        }
    }
}
