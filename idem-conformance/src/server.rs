//! The address of a server that a test needs.

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
