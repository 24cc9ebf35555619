//! The plot: each mode of idem beside its alternatives. It is the picture of `docs/performance.md`.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::case::{Case, Side, Work};
use crate::outcome::Outcome;

const LEFT: f64 = 330.0;
const WIDTH: f64 = 540.0;
const TOP: f64 = 34.0;
const ROW: f64 = 26.0;
/// The lines of the scale, without its start.
const LINES: u32 = 5;

/// A bar with its label and messages per second.
struct Bar {
    label: String,
    rate: f64,
    fill: &'static str,
}

/// Writes `target/bench/bench.svg`.
pub(crate) fn save(outcome: &Outcome) -> Result<()> {
    let file = crate::report::directory()?.join("bench.svg");
    let caption = format!("Messages per second, median of {} rounds. {}", outcome.rounds, outcome.machine.line());
    std::fs::write(&file, svg(&caption, &groups(outcome))).with_context(|| format!("cannot write {}", file.display()))
}

/// Returns the measured bars in groups, each with its title. All have 16 lanes, so a short run with these has the whole
/// plot.
fn groups(outcome: &Outcome) -> Vec<(&'static str, Vec<Bar>)> {
    let bar = |label: &str, side: Side, work: Work| {
        let rate = outcome.samples.rate(&Case::new(side, 16).work(work))?;
        Some(Bar { label: label.to_owned(), rate, fill: fill(side) })
    };
    let fresh = |label: &str, side: Side| bar(label, side, Work::Fresh);
    let mut single = vec![
        fresh("no deduplication, autocommit", Side::Autocommit),
        fresh("idem, natural handler", Side::Natural),
        fresh("idem", Side::Idem),
        fresh("loop by hand, sqlx", Side::ByHand),
    ];
    single.extend(outcome.peers.iter().enumerate().map(|(at, name)| fresh(name, Side::Peer(at))));
    let staged = vec![
        bar("idem", Side::Idem, Work::Staged),
        bar("loop by hand, sqlx", Side::ByHand, Work::Staged),
        bar("idem, .batch(100)", Side::Batch(100), Work::Staged),
    ];
    let batches = vec![
        fresh("idem, .batch(100), same handler", Side::Batch(100)),
        fresh("idem, .batch(1000), handler of Batch<M>", Side::BatchHandler(1000)),
        fresh("raw SQL, 1000 by two statements", Side::Raw),
    ];
    let sqlite = vec![fresh("idem", Side::Sqlite), fresh("loop by hand, sqlx", Side::SqliteByHand)];
    let groups = [
        ("One message per transaction, 16 at once", single),
        ("With a message for the outbox", staged),
        ("Many messages per transaction, 16 transactions at once", batches),
        ("SQLite, one message per transaction", sqlite),
    ];
    let measured = groups.into_iter().map(|(title, bars)| (title, bars.into_iter().flatten().collect::<Vec<_>>()));
    measured.filter(|(_, bars)| !bars.is_empty()).collect()
}

fn fill(side: Side) -> &'static str {
    match side {
        Side::Idem | Side::Natural | Side::Batch(_) | Side::BatchHandler(_) | Side::Sqlite => "#2b6cb0",
        Side::Peer(_) => "#c05621",
        _ => "#9aa5b1",
    }
}

fn svg(caption: &str, groups: &[(&str, Vec<Bar>)]) -> String {
    let rows: usize = groups.iter().map(|(_, bars)| 1 + bars.len()).sum();
    let step = step(groups.iter().flat_map(|(_, bars)| bars).map(|bar| bar.rate).fold(1.0, f64::max));
    let length = |rate: f64| rate / (f64::from(LINES) * step) * WIDTH;
    let bottom = TOP + ROW * rows as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 {height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"960\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"20\">{}</text>\n",
        text(caption),
        height = bottom + 26.0
    );
    for line in 0..=LINES {
        let rate = f64::from(line) * step;
        let (x, y) = (LEFT + length(rate), bottom + 16.0);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<path d=\"M{x} {TOP}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
            commas(rate)
        );
    }
    let mut y = TOP;
    for (title, bars) in groups {
        let _ = writeln!(svg, "<text x=\"8\" y=\"{}\" font-weight=\"bold\">{}</text>", y + 18.0, text(title));
        for Bar { label, rate, fill } in bars {
            y += ROW;
            let (start, end, base) = (LEFT - 8.0, LEFT + length(*rate) + 6.0, y + 18.0);
            let _ = writeln!(
                svg,
                "<text x=\"{start}\" y=\"{base}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{}\" \
                 width=\"{:.1}\" height=\"18\" fill=\"{fill}\"/><text x=\"{end:.1}\" y=\"{base}\">{}</text>",
                text(label),
                y + 5.0,
                length(*rate),
                commas(*rate)
            );
        }
        y += ROW;
    }
    svg + "</svg>\n"
}

/// Returns a round number, of which [`LINES`] are at least this rate.
fn step(rate: f64) -> f64 {
    let least = rate / f64::from(LINES);
    let decade = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0].map(|times| times * decade).into_iter().find(|step| *step >= least).unwrap_or(10.0 * decade)
}

/// Returns a number with a comma after each thousand.
fn commas(number: f64) -> String {
    let (digits, mut text) = (format!("{number:.0}"), String::new());
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn text(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_has_round_numbers() {
        assert_eq!((step(229_541.0), step(250_000.0), step(251_000.0), step(6_507.0)), (5e4, 5e4, 1e5, 2e3));
        assert_eq!((commas(0.0), commas(950.4), commas(250_000.0)), ("0".into(), "950".into(), "250,000".into()));
    }

    #[test]
    fn a_bar_has_its_label_and_its_rate() {
        let bar = Bar { label: "idem, Batch<M>".to_owned(), rate: 125_000.0, fill: fill(Side::Idem) };
        let plot = svg("caption", &[("title", vec![bar])]);
        assert!(plot.contains("idem, Batch&lt;M></text>") && plot.contains(">125,000</text>"), "{plot}");
        // The scale ends at 250,000.
        assert!(plot.contains("width=\"270.0\""), "{plot}");
    }
}
