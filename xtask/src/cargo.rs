//! Runs cargo and prints each command.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

pub(crate) use idem_services::root;

/// Returns `cargo <args>` in the root of the repository.
pub(crate) fn cargo<I: AsRef<str>>(args: impl IntoIterator<Item = I>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Variables that `cargo run` has set for this program must not reach the cargo that it starts: build scripts that
    // watch such a variable would run again each time.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&*name);
        }
    }
    command.current_dir(root());
    for arg in args {
        command.arg(arg.as_ref());
    }
    command
}

/// Prints the command, and returns its arguments.
pub(crate) fn announce(command: &Command) -> String {
    let args = command.get_args().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ");
    eprintln!("\n$ cargo {args}");
    args
}

/// Runs a program in the directory of development builds: cargo's own runs would select other features, and build again.
pub(crate) fn run_built(program: &str, args: &[&str]) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    eprintln!("\n$ {program} {}", args.join(" "));
    let status = Command::new(target.join("debug").join(program)).args(args).status();
    let status = status.with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} {} failed ({status})", args.join(" "));
    Ok(())
}

/// Prints the command, runs it with this terminal, then prints how long it took.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let args = announce(command);
    let began = Instant::now();
    let status = command.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo {args} failed ({status})");
    }
    eprintln!("({:.0} s)", began.elapsed().as_secs_f64());
    Ok(())
}
