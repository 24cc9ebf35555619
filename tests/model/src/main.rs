//! A model of idem's protocol, whose states are all searched. With all rules every property holds, and for each rule that
//! is broken on purpose the search must find how a message is lost or doubled, or dies of it. `cargo xtask model` runs it.
//!
//! Each part of the protocol is a module: `messages` has deliveries and inbox rows, `batch` several
//! messages in one transaction, `relay` the outbox, `calls` the calls
//! to providers. In each, `state` is what can change, `defect` the rules that can be broken, and the worlds are what is
//! searched. The other files have the steps.

mod batch;
mod calls;
mod case;
mod messages;
mod property;
mod relay;
mod report;
mod search;
mod step;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (mut small, mut traces) = (false, false);
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--small" => small = true,
            "--traces" => traces = true,
            unknown => {
                eprintln!("{unknown}: only --small and --traces are known");
                return ExitCode::FAILURE;
            }
        }
    }
    match report::report(&case::cases(small), traces) {
        0 => ExitCode::SUCCESS,
        wrong => {
            eprintln!("{wrong} cases are not as they must be");
            ExitCode::FAILURE
        }
    }
}
