//! The compile errors for user mistakes: one mistake in each file of `tests/ui/fail`, which is named after it.
//!
//! `TRYBUILD=overwrite cargo test --package idem-mistakes` rewrites the expected texts; read them as a user would.

use std::process::Command;

/// Parts of the texts are rustc's, and change with it.
const RUSTC: &str = "rustc 1.95.";

#[test]
fn each_mistake_is_shown_where_it_is_with_its_cure() {
    let rustc = Command::new("rustc").arg("--version").output().unwrap();
    if !rustc.stdout.starts_with(RUSTC.as_bytes()) {
        let found = String::from_utf8_lossy(&rustc.stdout).into_owned();
        assert!(std::env::var_os("CI").is_none(), "the texts are those of {RUSTC}*, and this is {found}");
        println!("skipped: the texts are those of {RUSTC}*, and this is {found}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
