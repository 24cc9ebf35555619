//! The plot: a bar for each case, on a logarithmic scale.

use std::fmt::Write;

use anyhow::{Context, Result};

use crate::outcome::Outcome;

const LEFT: f64 = 330.0;
const WIDTH: f64 = 520.0;
const BAR: f64 = 18.0;
/// The start and end of the scale, in messages per second.
const SCALE: (f64, f64) = (100.0, 1_000_000.0);

/// Writes `target/bench/bench.svg`.
pub(crate) fn save(outcome: &Outcome) -> Result<()> {
    let file = crate::report::directory()?.join("bench.svg");
    let caption = format!("Messages a second, median of {} rounds. {}", outcome.rounds, outcome.machine.line());
    std::fs::write(&file, svg(&caption, &outcome.bars())).with_context(|| format!("cannot write {}", file.display()))
}

fn svg(caption: &str, bars: &[(String, f64)]) -> String {
    let height = BAR * bars.len() as f64 + 70.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 960 {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"960\" height=\"{height}\" fill=\"#fff\"/>\n<text x=\"8\" y=\"18\">{}</text>\n",
        text(caption)
    );
    for decade in 2..=6 {
        let (value, bottom) = (10_f64.powi(decade), height - 34.0);
        let x = LEFT + length(value);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<path d=\"M{x} 28V{bottom}\" stroke=\"#ddd\"/><text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{value}</text>",
            height - 18.0
        );
    }
    for (at, (label, rate)) in bars.iter().enumerate() {
        let (y, long) = (32.0 + BAR * at as f64, length(*rate));
        // The letter of the side selects the colour.
        let fill = match label.get(..2) {
            Some("A " | "B " | "F " | "pg") => "#9aa5b1",
            Some("C " | "D " | "E ") => "#2b6cb0",
            _ => "#c05621",
        };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" width=\"{long:.1}\" \
             height=\"{}\" fill=\"{fill}\"/><text x=\"{:.1}\" y=\"{}\">{rate:.0}</text>",
            LEFT - 6.0,
            y + 12.0,
            text(label),
            BAR - 4.0,
            LEFT + long + 4.0,
            y + 12.0
        );
    }
    svg + "</svg>\n"
}

fn length(rate: f64) -> f64 {
    let (low, high) = (SCALE.0.ln(), SCALE.1.ln());
    ((rate.ln() - low) / (high - low)).clamp(0.0, 1.0) * WIDTH
}

fn text(plain: &str) -> String {
    plain.replace('&', "&amp;").replace('<', "&lt;")
}
