//! Every chore of this repository is one command: `cargo xtask --help`.

mod bench;
mod cargo;
mod ci;
mod services;
mod test;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every chore of this repository is one command.")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Find, start and end the servers that tests need.
    Services {
        #[command(subcommand)]
        what: services::What,
    },
    /// Measure idem side by side with what it is compared to.
    Bench {
        #[command(subcommand)]
        what: bench::What,
    },
    /// Run every test against real servers.
    Test(test::Options),
    /// Run what CI runs: format, lints, docs, features, tests.
    Ci,
}

fn main() -> Result<()> {
    match Arguments::parse().chore {
        Chore::Services { what } => services::run(what),
        Chore::Bench { what } => bench::run(&what),
        Chore::Test(options) => test::test(&options),
        Chore::Ci => ci::run_all(),
    }
}
