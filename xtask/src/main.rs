//! The chores of this repository, each a subcommand: `cargo xtask --help`.

mod cargo;
mod ci;
mod matrix;
mod mutants;
mod packages;
mod services;
mod suites;
mod test;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every chore of this repository is one command.")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Find, start and stop the servers that tests need.
    Services {
        #[command(subcommand)]
        what: services::What,
    },
    /// Measure idem side by side with its alternatives.
    Bench(Passed),
    /// Run a worker for an hour at half of its load, and print what grows.
    Soak(Passed),
    /// Run every test against real servers.
    Test(test::Options),
    /// Run what CI runs: format, lints, docs, features, tests.
    Ci(ci::Options),
    /// Run workers, kill them, and print the outcome of each message.
    Demo(Passed),
    /// Apply deliberate defects, one at a time, and check that a named test catches each.
    Mutants(mutants::Options),
    /// Make pictures of each view of the page in target/screenshots, and that of the README.
    Screenshots,
    /// Search all states of a model of the protocol: each rule must hold, and be needed.
    Model(Passed),
    /// Run the tests that depend on server versions, on old and new servers, and print one table.
    Matrix(matrix::Options),
}

/// The arguments of another program, which explains them.
#[derive(Args)]
#[command(disable_help_flag = true)]
struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Services { what } => services::run(what),
        Chore::Bench(options) => packages::measure(&[], &options.args),
        Chore::Soak(options) => packages::measure(&["soak"], &options.args),
        Chore::Test(options) => test::test(&options, || Ok(())),
        Chore::Ci(options) => ci::run_all(&options),
        Chore::Demo(options) => packages::demo(&options.args),
        Chore::Mutants(options) => mutants::run(&options),
        Chore::Screenshots => packages::screenshots(),
        Chore::Model(options) => packages::search(&options.args),
        Chore::Matrix(options) => matrix::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // One line, without the backtrace that `RUST_BACKTRACE` would add: the failed command has already printed its
        // output.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
