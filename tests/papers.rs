//! The README, the landing page and the manifest say the same, and stay as short as they are meant to be.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::BTreeSet;

const README: &str = include_str!("../README.md");
const LANDING_PAGE: &str = include_str!("../src/docs/crate.md");
/// The public items, which `cargo xtask api` keeps up to date.
const API: &str = include_str!("../docs/api/idem-rs.txt");

type Names<'a> = BTreeSet<&'a str>;

/// The features that the manifest defines.
fn defined() -> Names<'static> {
    let manifest = include_str!("../Cargo.toml");
    let section = manifest.split("\n[features]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let lines = section.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).filter(|name| *name != "default").collect()
}

/// The features in the first column of the table of features.
fn listed(page: &str) -> Names<'_> {
    let table = page.split("| feature | |\n|---|---|\n").nth(1).unwrap().split("\n\n").next().unwrap();
    // Every second part of a cell is between two backticks.
    table.lines().flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_readme_and_the_landing_page_list_every_feature_and_no_other() {
    assert_eq!(listed(README), defined(), "README.md on the left, Cargo.toml on the right");
    assert_eq!(listed(LANDING_PAGE), defined(), "src/docs/crate.md on the left, Cargo.toml on the right");
    for page in [README, LANDING_PAGE] {
        assert!(page.contains("| `sqlite` (default) |"), "the default feature is marked");
    }
}

#[test]
fn the_readme_has_180_lines_and_the_root_30_names_at_most() {
    let lines = README.lines().count();
    assert!(lines <= 180, "README.md has {lines} lines: move details to a guide");
    let modules = ["kafka", "nats", "rabbitmq", "store"];
    let names = API.lines().filter_map(|line| line.strip_prefix("pub use idem::"));
    let names: Names<'_> = names.filter(|name| !name.contains("::") && !modules.contains(name)).collect();
    assert!(names.contains("Worker") && names.len() <= 30, "{} names: {names:?}", names.len());
}

#[test]
fn the_readme_defines_its_terms_before_it_uses_them_in_the_diagram_and_the_table() {
    let at = |text: &str| README.find(text).unwrap();
    for term in ["**handler**", "**key**", "**claim**"] {
        assert!(at(term) < at("sequenceDiagram"), "{term}");
    }
    for term in ["is acked (", "the retention, ", "**scheduled**", "**dead letters**", "**conflict**"] {
        assert!(at(term) < at("| the handler | the transaction |"), "{term}");
    }
    for term in ["acked", "retention"] {
        assert!(at(term) >= at("A message is acked ("), "the first use of {term:?} explains it");
    }
}
