//! A model of idem's protocol, whose states are all searched. With all rules every property holds, and for each rule that
//! is broken on purpose the search must find how a message is lost or doubled, or dies of it. `cargo xtask model` runs it.
//!
//! | module | its steps |
//! |---|---|
//! | `messages::{broker, claims, classify, storing}` | a delivery: claim, handler, guard, commit, ack; or it is stored |
//! | `messages::{rows, suspects}` | an inbox row: take, run, record; a suspect: reserve, count its start, run; judge |
//! | `messages::{crash, prune, operator}` | what happens to them: a process ends, time passes, claims are pruned, an operator acts |
//! | `batch` | several messages in one transaction |
//! | `relay::{staging, lane, publish}` | the outbox: staged, published in the order of each key, deleted |
//! | `calls::{row, provider}` | calls to a provider outside of the transaction, under a key that the row keeps |
//!
//! `messages::traces` checks that what real workers did is a path of `messages`: `--check FILE` reads a trace, of which
//! idem-test writes one (`Trial`, in `tests/traces.rs` of this package).
//!
//! In each part, `state` is what can change, `defect` lists the rules that can be broken, and `world` or `worlds` has what
//! is searched: messages, and how many failures of each kind may come. `property` lists what must hold.
//!
//! Left out, because a smaller model says nothing about them or they have tests of their own: rows without a key, replay
//! under another key, delivery to several handlers, batches of rows, local messages, the levels from which a relay reads, and
//! every delay. A worker that waits may wait for ever here, so that no order of steps is left out.

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
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--small" => small = true,
            "--traces" => traces = true,
            "--check" => return check(&arguments.collect::<Vec<_>>()),
            unknown => {
                eprintln!("{unknown}: only --small, --traces and --check FILE are known");
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

/// Checks a trace that is in these files, for example in one of each process.
fn check(files: &[String]) -> ExitCode {
    let texts: Result<Vec<_>, _> = files.iter().map(std::fs::read_to_string).collect();
    let text = match texts {
        Ok(texts) => texts.concat(),
        Err(error) => {
            eprintln!("a trace cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    match messages::check_trace(&text) {
        Ok(checked) => {
            let messages::Checked { keys, lines, places } = checked;
            println!("{keys} keys, {lines} lines: each key is a path of the model; {places} places were searched");
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            eprintln!("{refusal}");
            ExitCode::FAILURE
        }
    }
}
