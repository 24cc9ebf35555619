//! Texts, numbers and times as they are shown, and the picture of an hour.

use std::time::Duration;

use idem_core::operator::{Counted, Rates, Time, ago, is_harmless};
use maud::{Markup, html};

/// A text from outside, without what misleads the eye, cut to `limit` bytes of HTML: a page stays small whatever is in its
/// messages. Lines stay lines.
pub(crate) fn short(text: &str, limit: usize) -> String {
    let (mut shown, mut size) = (String::new(), 0);
    for character in text.chars() {
        let is_plain = character == '\n' || is_harmless(character);
        let written = if is_plain { character.to_string() } else { character.escape_unicode().to_string() };
        size += html! { (written) }.0.len();
        if size > limit {
            shown.push_str(" ..");
            break;
        }
        shown.push_str(&written);
    }
    shown
}

/// A handler with its consumer.
pub(crate) fn handler(consumer: &str, handler: &str) -> String {
    short(&if consumer.is_empty() { handler.to_owned() } else { format!("{consumer}/{handler}") }, 64)
}

/// A number with commas between the thousands.
pub(crate) fn number(rows: u64) -> String {
    Counted { rows, at_least: false }.to_string()
}

/// "1 message", "2 messages".
pub(crate) fn messages(rows: u64) -> String {
    format!("{} message{}", number(rows), if rows == 1 { "" } else { "s" })
}

/// How long ago it was; the exact time when pointed at.
pub(crate) fn when(time: Time) -> Markup {
    html! { time title=(time) { (past(time.0.elapsed().unwrap_or_default())) } }
}

pub(crate) fn past(age: Duration) -> String {
    format!("{} ago", ago(age))
}

/// What was processed, and below it what else happened.
pub(crate) fn rates(rates: &Rates) -> Markup {
    html! {
        (number(rates.processed))
        @if rates.duplicates > 0 { " " small { (number(rates.duplicates)) " dup." } }
        @if rates.failed > 0 { " " small.bad { (number(rates.failed)) " failed" } }
    }
}

/// Sixty minutes, the newest last: processed as a line, failed as bars. It has no style of its own, which the policy forbids.
pub(crate) fn spark(processed: &[u32], failed: &[u32]) -> Markup {
    let top = processed.iter().chain(failed).copied().max().unwrap_or_default().max(1);
    let height = |count: u32| (16.0 * f64::from(count) / f64::from(top)).round();
    let point = |(minute, count): (usize, &u32)| format!("{minute},{} ", 16.0 - height(*count));
    // One failure among thousands is seen, too.
    let bar = |(minute, count): (usize, &u32)| format!("M{minute} 16v-{}", height(*count).max(3.0));
    let line: String = processed.iter().enumerate().map(point).collect();
    let bars: String = failed.iter().enumerate().filter(|(_, count)| **count > 0).map(bar).collect();
    html! {
        svg.spark viewBox="0 -1 60 18" width="120" height="30" role="img" aria-label="Processed and failed" preserveAspectRatio="none" {
            polyline.line points=(line.trim_end()) fill="none" stroke-width="1.5" vector-effect="non-scaling-stroke" {}
            path.bars d=(bars) fill="none" stroke-width="2" vector-effect="non-scaling-stroke" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_its_size_as_html_and_its_lines_stay_lines() {
        assert_eq!(short("no such order:\n  7\u{1b}[31m", 160), "no such order:\n  7\\u{1b}[31m");
        for text in ["\"".repeat(500), "<".repeat(500), "\u{202e}".repeat(500), "\u{1f980}".repeat(500)] {
            let shown = html! { (short(&text, 160)) }.into_string();
            assert!(shown.len() <= 163 && shown.ends_with(".."), "{} bytes: {shown}", shown.len());
        }
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2000].map(messages), ["1 message", "2,000 messages"]);
    }

    #[test]
    fn a_failure_is_seen_beside_many_successes_and_nothing_is_divided_by_zero() {
        let mut processed = [1000; 60];
        processed[59] = 0;
        let mut failed = [0; 60];
        failed[3] = 1;
        let drawn = spark(&processed, &failed).into_string();
        assert!(drawn.contains("0,0 1,0 ") && drawn.contains("59,16\"") && drawn.contains("M3 16v-3"), "{drawn}");
        let quiet = spark(&[0; 60], &[0; 60]).into_string();
        assert!(quiet.contains("0,16 ") && quiet.contains("d=\"\""), "{quiet}");
        assert!(!quiet.contains("style"));
    }
}
