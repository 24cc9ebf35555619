//! The Grafana board, the table of metrics in the documentation, and the code name the same metrics.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

type Names = BTreeSet<String>;

/// The metrics in a text: the words that begin like the metrics of idem.
fn metrics(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| c != '_' && !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with("idem_")).map(str::to_owned)
}

/// The metrics in the table of the guide.
fn documented() -> Names {
    let page = include_str!("../src/docs/monitoring.md");
    let rows = page.lines().filter(|line| line.starts_with("| `idem_"));
    rows.filter_map(|row| row.split('|').nth(1)).flat_map(metrics).collect()
}

/// The metrics in the queries of the panels. A summary or histogram also has series with a suffix.
fn on_board(value: &Value, names: &mut Names) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(query) if name == "expr" || name == "query" => names.extend(metrics(query).map(family)),
                    _ => on_board(value, names),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| on_board(value, names)),
        _ => {}
    }
}

fn family(series: String) -> String {
    let suffix = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| series.strip_suffix(suffix));
    suffix.map_or(series.clone(), str::to_owned)
}

/// The metrics that the sources in this directory create. A description alone creates none.
fn created(directory: &Path, names: &mut Names) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            created(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            for kind in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
                let created = source.match_indices(kind).filter(|(at, _)| !source[..*at].ends_with("describe_"));
                let rest = created.map(|(at, _)| &source[at + kind.len()..]);
                names.extend(rest.map(|rest| rest.split('"').next().unwrap().to_owned()));
            }
        }
    }
}

#[test]
fn the_board_shows_every_metric_of_the_documentation_and_no_other() {
    let board: Value = serde_json::from_str(include_str!("../docs/grafana.json")).unwrap();
    let mut names = Names::new();
    on_board(&board["panels"], &mut names);
    assert_eq!(names, documented(), "the panels on the left, the table of src/docs/monitoring.md on the right");

    let mut chosen_by = Names::new();
    on_board(&board["templating"], &mut chosen_by);
    assert!(!chosen_by.is_empty() && chosen_by.is_subset(&names), "the variables ask for {chosen_by:?}");
}

/// The metrics whose descriptions in the code end with a command, each with that command.
fn commands() -> BTreeMap<String, String> {
    let texts: Vec<&str> =
        include_str!("../idem-core/src/telemetry/describe.rs").split('"').skip(1).step_by(2).collect();
    let commands = texts.chunks(2).filter_map(|pair| Some((pair[0], pair.get(1)?.rsplit_once(": idem ")?.1)));
    commands.map(|(metric, command)| (metric.to_owned(), format!("`idem {command}`"))).collect()
}

#[test]
fn a_panel_of_a_metric_names_the_command_that_shows_more() {
    let board: Value = serde_json::from_str(include_str!("../docs/grafana.json")).unwrap();
    let commands = commands();
    assert!(commands.len() >= 5, "{commands:?}");
    for (metric, command) in commands {
        let of_metric = |panel: &&Value| {
            let mut names = Names::new();
            on_board(panel, &mut names);
            names.contains(&metric)
        };
        let panels: Vec<&Value> = board["panels"].as_array().unwrap().iter().filter(of_metric).collect();
        assert!(!panels.is_empty(), "no panel shows {metric}");
        for panel in panels {
            let text = panel["description"].as_str().unwrap_or_default();
            assert!(text.contains(&command), "{} shows {metric} without {command}: {text}", panel["title"]);
        }
    }
}

#[test]
fn the_documentation_has_every_metric_that_the_code_creates() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut names = Names::new();
    for directory in [
        "idem-core/src",
        "idem-adapters/kafka/src",
        "idem-adapters/nats/src",
        "idem-adapters/rabbitmq/src",
        "idem-adapters/sqs/src",
    ] {
        created(&root.join(directory), &mut names);
    }
    assert_eq!(names, documented(), "the code on the left, the table of src/docs/monitoring.md on the right");
}
