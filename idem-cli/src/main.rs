//! The command `idem`: a thin layer over `idem_core::operator`, for people on call.
//!
//! | file | contents |
//! |---|---|
//! | `args` | the commands and their flags |
//! | `run` | which code a command runs |
//! | `reads` | commands that show something |
//! | `changes` | commands that change messages |
//! | `setup` | tables, roles, the page |
//! | `connect` | the database that is named, and why it cannot be used |
//! | `output` | JSON, tables, errors and their exit codes |

mod args;
mod changes;
mod connect;
mod output;
mod reads;
mod run;
mod setup;

use std::env;
use std::process::ExitCode;

use clap::Parser;
use tokio::runtime::Builder;

use args::Arguments;
use output::Failure;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && env::args_os().any(|argument| argument == "--json") => {
            return Failure::usage(error.to_string().trim_start_matches("error: ")).report(true);
        }
        Err(error) => error.exit(),
    };
    let is_json = arguments.globals.json;
    // One thread is enough for a command that waits for its database, and starts sooner than several.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::io);
    let ended = runtime.and_then(|runtime| runtime.block_on(run::run(arguments)));
    ended.map_or_else(|failure| failure.report(is_json), ExitCode::from)
}
