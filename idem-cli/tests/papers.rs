//! The commands that the README and the guides name are commands of `idem`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The commands of a page: the lines of its shell blocks, without their comments, and the texts between backticks.
fn commands(page: &str) -> Vec<&str> {
    let mut block = None;
    let mut found = Vec::new();
    for line in page.lines() {
        match (line.strip_prefix("```"), block) {
            (Some(language), None) => block = Some(language),
            (Some(_), Some(_)) => block = None,
            (None, Some("sh")) => found.extend(line.split(" #").next()),
            (None, Some(_)) => {}
            (None, None) => found.extend(line.split('`').skip(1).step_by(2)),
        }
    }
    found.retain(|text| text.starts_with("idem "));
    found
}

/// The words behind `idem`, as a shell splits them, with a value in place of `KEY`.
fn arguments(command: &str) -> Vec<&str> {
    let parts = command.split('\'').enumerate();
    let words = parts.flat_map(|(number, part)| match number % 2 {
        0 => part.split_whitespace().collect::<Vec<_>>(),
        _ => vec![part],
    });
    words.skip(1).map(|word| if word == "KEY" { "9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2" } else { word }).collect()
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guides = fs::read_dir(root.join("src/docs")).unwrap().map(|entry| entry.unwrap().path());
    guides.filter(|path| path.extension().is_some_and(|end| end == "md")).chain([root.join("README.md")]).collect()
}

#[test]
fn each_command_that_the_papers_name_is_understood() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("e-2.json"), "{}").unwrap();
    let mut count = 0;
    for path in pages() {
        for command in commands(&fs::read_to_string(&path).unwrap()) {
            // It prints the help only if it understands all that is in front.
            let mut idem = Command::new(env!("CARGO_BIN_EXE_idem"));
            let ran = idem.args(arguments(command)).arg("--help").current_dir(&directory).output().unwrap();
            let error = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success(), "{} has `{command}`: {error}", path.display());
            count += 1;
        }
    }
    assert!(count > 40, "only {count} commands were found");
}

#[test]
fn commands_are_found_in_shell_blocks_and_between_backticks() {
    let page = "Say `idem status`, or\nidem as a word.\n```sh\nidem why h 7 # a comment\n```\n```\nidem in(code)\n```\nno `idem_dead`";
    assert_eq!(commands(page), ["idem status", "idem why h 7"]);
    let command = "idem dead replay --error 'relation \"orders\"' --as KEY";
    let key = "9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a2";
    assert_eq!(arguments(command), ["dead", "replay", "--error", "relation \"orders\"", "--as", key]);
}
