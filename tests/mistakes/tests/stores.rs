//! The compile errors for a store without its feature. The cases of `ui.rs` have both stores, and to build idem without
//! them takes a minute: rustc compiles only the file that stands in for them.

use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_store_without_its_feature_is_an_error_that_names_the_feature() {
    let missing = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/missing.rs");
    for (store, feature) in [("Postgres", "postgres"), ("Sqlite", "sqlite")] {
        for constructor in ["connect", "options"] {
            let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{feature}_{constructor}.rs"));
            let call = format!("let _ = missing::{store}::{constructor}(\"url\");");
            let program = format!("#[path = {missing:?}]\nmod missing;\nfn main() {{ {call} }}\n");
            fs::write(&source, program).unwrap();
            let mut rustc = Command::new("rustc");
            rustc.args(["--edition", "2024", "--emit", "metadata", "--out-dir", env!("CARGO_TARGET_TMPDIR")]);
            let output = rustc.arg(&source).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success(), "{call}");
            for part in [
                format!("error[E0277]: `{store}` needs the feature `{feature}` of idem\n"),
                format!("the feature `{feature}` is off\n"),
                format!("`idem = {{ package = \"idem-rs\", .., features = [\"{feature}\"] }}`\n"),
            ] {
                assert!(text.contains(&part), "{part:?} is not in {text}");
            }
        }
    }
}
