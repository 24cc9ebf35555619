//! What a test needs beside itself: a server, or the program of an example.

use std::path::PathBuf;

/// Returns the address of a server that a test needs, from the environment.
///
/// Prints a line and returns `None` if the variable is not set.
///
/// # Panics
/// Panics if the variable is not set although `CI` is: continuous integration skips nothing.
#[allow(clippy::panic, reason = "a test fails by panicking")]
pub fn server(variable: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(address) if !address.is_empty() => Some(address),
        _ if std::env::var_os("CI").is_some() => panic!("{variable} is not set, and CI skips nothing"),
        _ => {
            println!("skipped: {variable} is not set, run cargo xtask test");
            None
        }
    }
}

/// Returns the program of an example, which cargo builds beside the tests.
///
/// Prints a line and returns `None` if it was not built.
///
/// # Panics
/// Panics if it was not built although `CI` is set: continuous integration skips nothing.
pub fn example(name: &str) -> Option<PathBuf> {
    let tests = std::env::current_exe().ok()?;
    let example = tests.ancestors().nth(2)?.join("examples").join(name);
    match example.exists() {
        true => return Some(example),
        false if std::env::var_os("CI").is_some() => panic!("{} was not built", example.display()),
        false => println!("skipped: {} was not built, run cargo xtask test", example.display()),
    }
    None
}
