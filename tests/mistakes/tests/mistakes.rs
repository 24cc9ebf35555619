//! The compile errors for mistakes of users, as idem words them. A file of `tests/cases` has one case after another: each begins
//! with `// case: NAME`, and is a program of its own behind the lines above the first case. Below a line in error stand:
//!
//! - `//~`, carets under the place, and the message, or only rustc's code if the message is rustc's own;
//! - `//~ label: ..` and `//~ note: ..`: what idem adds to the message above.
//!
//! All errors of a case must be there, and no others. `BLESS=1 cargo test -p idem-mistakes` writes what was found into the
//! files; read it as a user would.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

const MANIFEST: &str = r#"
[package]
name = "mistakes"
edition = "2024"

[dependencies]
idem = { package = "idem-rs", path = "ROOT", default-features = false, features = ["postgres", "sqlite"] }
serde = { version = "1", features = ["derive"] }
sqlx = { version = "0.9", default-features = false }

[workspace]
"#;

/// How texts begin that rustc and serde add to an error about a trait of idem, or put in place of idem's.
const OTHERS: [&str; 6] = [
    "the trait ",
    "unsatisfied trait bound",
    "required ",
    "this error originates ",
    "for local types ",
    "for types from other crates ",
];

fn is_of_others(text: &str) -> bool {
    OTHERS.iter().any(|start| text.starts_with(start)) || text.ends_with(" hidden")
}

/// An error as an annotation, behind its line and column.
fn annotation(name: &str, error: &Value) -> (u64, u64, String) {
    let spans = error["spans"].as_array().unwrap();
    let span = spans.iter().find(|span| span["is_primary"] == true).unwrap_or_else(|| panic!("{name}: {error:#}"));
    let number = |field: &str| span[field].as_u64().unwrap();
    let (line, start) = (number("line_start"), number("column_start"));
    // Of several lines, the first one.
    let first_line_ends = || span["text"][0]["highlight_end"].as_u64().unwrap();
    let end = if number("line_end") == line { number("column_end") } else { first_line_ends() };
    assert!(start > 4, "{name}: indent line {line}, for carets behind `//~`");
    let message = error["message"].as_str().unwrap();
    // The authors of a trait speak through E0277, and those of a macro through errors without a code.
    let code = error["code"]["code"].as_str();
    let text = code.filter(|code| *code != "E0277" || is_of_others(message)).unwrap_or(message);
    let carets = "^".repeat(usize::try_from((end - start).max(1)).unwrap());
    let mut lines = format!("//~{:>1$} {text}\n", carets, usize::try_from(start - 4).unwrap() + carets.len());
    let children = error["children"].as_array().unwrap().iter();
    let notes = children.filter(|child| child["level"] == "note" && child["spans"] == Value::Array(Vec::new()));
    let added = [("label", &span["label"])].into_iter().chain(notes.map(|note| ("note", &note["message"])));
    for (kind, added) in added.filter_map(|(kind, added)| Some((kind, added.as_str()?))) {
        if code == Some("E0277") && text == message && !is_of_others(added) {
            lines.push_str(&format!("//~ {kind}: {added}\n"));
        }
    }
    (line, start, lines)
}

/// The cases in a file: the lines above the first one, the name, and the lines below it.
fn cases(text: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let (head, rest) = text.split_once("// case: ").unwrap();
    rest.split("// case: ").map(move |case| case.split_once('\n').unwrap()).map(move |(name, body)| (head, name, body))
}

/// The lines of a case without its annotations.
fn code(body: &str) -> impl Iterator<Item = &str> {
    body.lines().filter(|line| !line.trim_start().starts_with("//~"))
}

/// Runs cargo, and returns the errors of each program.
fn errors(package: &Path) -> BTreeMap<String, Vec<Value>> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(package).args(["check", "--offline", "--keep-going", "--message-format=json", "--target-dir"]);
    cargo.arg(package.with_file_name("mistakes-target")).env("CARGO_INCREMENTAL", "0");
    let output = cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS").output().unwrap();
    let mut errors = BTreeMap::<_, Vec<_>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        let message = line["message"].take();
        let is_end = message["message"].as_str().is_some_and(|text| text.starts_with("aborting due to "));
        if message["level"] == "error" && !is_end {
            errors.entry(line["target"]["name"].as_str().unwrap().to_owned()).or_default().push(message);
        }
    }
    assert!(!errors.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    errors
}

#[test]
fn each_mistake_is_shown_where_it_is_with_its_remedy() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..").canonicalize().unwrap();
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mistakes");
    let _ = fs::remove_dir_all(&package);
    fs::create_dir_all(package.join("src/bin")).unwrap();
    fs::write(package.join("Cargo.toml"), MANIFEST.replace("ROOT", root.to_str().unwrap())).unwrap();
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock")).unwrap();
    fs::copy(root.join("src/missing.rs"), package.join("src/missing.rs")).unwrap();
    let files: Vec<_> = fs::read_dir(here.join("tests/cases")).unwrap().map(|file| file.unwrap().path()).collect();
    let texts: Vec<_> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    for (head, name, body) in texts.iter().flat_map(|text| cases(text)) {
        let program = package.join("src/bin").join(name).with_extension("rs");
        assert!(!program.exists(), "two cases are called {name}");
        fs::write(program, format!("{head}{}\nfn main() {{}}\n", code(body).collect::<Vec<_>>().join("\n"))).unwrap();
    }
    let (errors, mut wrong) = (errors(&package), Vec::new());
    for (file, text) in files.iter().zip(&texts) {
        let mut found = text.split("// case: ").next().unwrap().to_owned();
        for (head, name, body) in cases(text) {
            let failed = || panic!("{name} has no error, and these have: {:?}", errors.keys());
            let errors = errors.get(name).unwrap_or_else(failed);
            let mut annotations: Vec<_> = errors.iter().map(|error| annotation(name, error)).collect();
            annotations.sort();
            let above = head.lines().count() as u64;
            assert!(annotations[0].0 > above, "{name} has errors above it: {annotations:?}");
            let mut case = String::new();
            for (line, code) in (above + 1..).zip(code(body)) {
                case.push_str(&format!("{code}\n"));
                annotations.iter().filter(|(at, ..)| *at == line).for_each(|(.., lines)| case.push_str(lines));
            }
            found.push_str(&format!("// case: {name}\n{case}"));
            if case != body {
                wrong.push(format!("// case: {name}\n{case}"));
            }
        }
        if env::var_os("BLESS").is_some() {
            fs::write(file, found).unwrap();
        }
    }
    assert!(wrong.is_empty(), "these were found, and others expected:\n{}", wrong.join(""));
}
