//! Searches the model of idem's protocol, or checks traces of real workers against it.

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
                eprintln!("{unknown}: only --small, --traces and --check FILE.. are known");
                return ExitCode::FAILURE;
            }
        }
    }
    match idem_model::search(small, traces) {
        0 => ExitCode::SUCCESS,
        wrong => {
            eprintln!("{wrong} cases are not as they must be");
            ExitCode::FAILURE
        }
    }
}

/// Checks one trace that is in these files, for example in one of each process.
fn check(files: &[String]) -> ExitCode {
    let texts: Result<Vec<String>, std::io::Error> = files.iter().map(std::fs::read_to_string).collect();
    let checked = texts.map_err(|error| format!("a trace cannot be read: {error}"));
    match checked.and_then(|texts| idem_model::check_trace(&texts.concat())) {
        Ok(checked) => {
            println!("{checked}");
            ExitCode::SUCCESS
        }
        Err(refusal) => {
            eprintln!("{refusal}");
            ExitCode::FAILURE
        }
    }
}
