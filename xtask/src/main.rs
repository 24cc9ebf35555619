//! The chores of this repository, each a subcommand: `cargo xtask --help`.

mod api;
mod bench;
mod cargo;
mod ci;
mod circles;
mod demo;
mod deny;
mod failures;
mod imports;
mod layers;
mod license;
mod matrix;
mod measured;
mod methods;
mod model;
mod mutants;
mod package;
mod program;
mod readme;
mod services;
mod sizes;
mod soak;
mod suites;
mod test;
mod tree;
mod unpacked;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    Bench(bench::Options),
    /// Run a worker for an hour at half of its load, and print what grows.
    Soak(soak::Options),
    /// Run every test against real servers.
    Test(test::Options),
    /// Run what CI runs: format, lints, docs, features, tests.
    Ci(ci::Options),
    /// Run workers, kill them, and print the outcome of each message.
    Demo(demo::Options),
    /// Apply deliberate defects, one at a time, and check that a named test catches each.
    Mutants(mutants::Options),
    /// Search all states of a model of the protocol: each rule must hold, and be needed.
    Model(model::Options),
    /// Run the tests that depend on server versions, on old and new servers, and print one table.
    Matrix(matrix::Options),
    /// Create the packages for crates.io, and check that each contains its licences and README.
    Package(package::Options),
    /// Compile the first programs of the README and of the guide with the dependencies that stand beside them.
    Readme,
    /// Compare the public API of the published crates with the lists in docs/api.
    Api(api::Options),
    /// Check the licences, sources and advisories of all dependencies.
    Deny(deny::Options),
}

fn main() -> ExitCode {
    if let Some(code) = api::as_rustdoc() {
        return code;
    }
    let done = match Arguments::parse().chore {
        Chore::Services { what } => services::run(what),
        Chore::Bench(options) => bench::run(&options),
        Chore::Soak(options) => soak::soak(&options),
        Chore::Test(options) => test::test(&options),
        Chore::Ci(options) => ci::run_all(&options),
        Chore::Demo(options) => demo::demo(&options),
        Chore::Mutants(options) => mutants::run(&options),
        Chore::Model(options) => model::search(&options),
        Chore::Matrix(options) => matrix::run(&options),
        Chore::Package(options) => package::check(&options),
        Chore::Readme => readme::check(),
        Chore::Api(options) => api::check(&options),
        Chore::Deny(options) => deny::check(&options),
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
