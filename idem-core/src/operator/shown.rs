//! Texts, payloads and times as people may see them: on a terminal, in a log, and on the page.

use std::fmt::{self, Write as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::outbox::rfc3339;
use crate::store::Row;

/// A time. It is read as milliseconds since 1970, as the databases answer, and written as RFC 3339 in UTC with milliseconds, from
/// 1970 to 9999.
///
/// ```
/// # use std::time::{Duration, SystemTime};
/// # use idem_core::operator::Time;
/// let time = Time(SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_120));
/// assert_eq!(time.to_string(), "2000-02-29T00:00:00.120Z");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub SystemTime);

/// The last second of the year 9999, in milliseconds. A producer's clock may be anywhere.
const LAST: i64 = 253_402_300_799_999;

impl Time {
    fn from_millis(millis: i64) -> Self {
        Self(UNIX_EPOCH + Duration::from_millis(millis.clamp(0, LAST).unsigned_abs()))
    }

    /// Milliseconds since 1970.
    pub(super) fn millis(self) -> i64 {
        let since = self.0.duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(LAST).min(LAST)
    }
}

/// 1970.
impl Default for Time {
    fn default() -> Self {
        Self(UNIX_EPOCH)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rfc3339(self.0))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        i64::deserialize(deserializer).map(Self::from_millis)
    }
}

/// A duration as milliseconds, if there is one. A clock that was set back makes it negative: then it is zero.
pub(super) mod millis {
    use super::*;

    pub(in crate::operator) fn serialize<S: Serializer>(
        time: &(impl Into<Option<Duration>> + Copy),
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let time: Option<Duration> = (*time).into();
        time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(in crate::operator) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let millis = Option::<i64>::deserialize(deserializer)?;
        Ok(millis.map(|millis| Duration::from_millis(u64::try_from(millis).unwrap_or_default())))
    }

    /// The same if there always is one.
    pub(in crate::operator) fn since<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        deserialize(deserializer).map(Option::unwrap_or_default)
    }
}

/// Formats a time that has passed, in its two largest units: `2 h 3 min`.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::operator::ago;
/// assert_eq!(ago(Duration::from_secs(7410)), "2 h 3 min");
/// assert_eq!(ago(Duration::from_millis(400)), "0 s");
/// ```
pub fn ago(time: Duration) -> String {
    let seconds = time.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "min"), (seconds % 60, "s")];
    let first = parts.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let shown = parts.iter().skip(first).take(2).filter(|(number, unit)| *number > 0 || (first == 3 && *unit == "s"));
    shown.map(|(number, unit)| format!("{number} {unit}")).collect::<Vec<_>>().join(" ")
}

/// Returns whether a character is shown as itself: it is no control character, and neither turns the direction of the text around
/// nor is invisible, so that a text from outside cannot look like another one.
pub fn is_harmless(character: char) -> bool {
    let hidden = matches!(
        character,
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}'
    );
    !character.is_control() && !hidden
}

/// A text from outside, for a terminal or a log. Characters that are not [harmless](is_harmless) are written as `\u{1b}`. It is cut
/// to `limit` characters, with ` ..` behind it.
///
/// ```
/// # use idem_core::operator::harmless;
/// assert_eq!(harmless("\u{1b}[2Jdone", 100), r"\u{1b}[2Jdone");
/// assert_eq!(harmless("abcdef", 3), "abc ..");
/// ```
pub fn harmless(text: &str, limit: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(limit));
    for (place, character) in text.chars().enumerate() {
        if place == limit {
            shown.push_str(" ..");
            break;
        }
        if is_harmless(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    shown
}

/// A word for a shell: in single quotes, unless it needs none.
///
/// ```
/// # use idem_core::operator::shell;
/// assert_eq!(shell("billing/order_paid"), "billing/order_paid");
/// assert_eq!(shell("it's 7"), r"'it'\''s 7'");
/// ```
pub fn shell(word: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '_' | '-' | '.' | ',' | ':' | '=' | '@' | '+');
    // A leading `=` is a path in zsh.
    if !word.is_empty() && word.chars().all(is_plain) && !word.starts_with('=') {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A command with these words for a shell. The first ones are its name and its flags; the arguments, which may come from outside,
/// follow behind `--` if one of them begins like a flag.
///
/// ```
/// # use idem_core::operator::command_line;
/// assert_eq!(command_line(&["idem", "why"], &["billing/x", "-7"]), "idem why -- billing/x -7");
/// ```
pub fn command_line(command: &[&str], arguments: &[&str]) -> String {
    let between = arguments.iter().any(|argument| argument.starts_with('-')).then_some("--");
    let words = command.iter().copied().chain(between).chain(arguments.iter().copied());
    words.map(shell).collect::<Vec<_>>().join(" ")
}

/// The parts of names that mean secrets.
const SECRETS: [&str; 10] =
    ["authorization", "cookie", "token", "secret", "passw", "api-key", "api_key", "apikey", "credential", "signature"];

/// Returns whether the name of a header or of a member of JSON means a secret: a password, a token or the like is in it, in
/// upper or lower case.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    SECRETS.iter().any(|part| name.contains(part))
}

/// Stands for a secret.
const HIDDEN: &str = "hidden";

/// Payloads above this size are not parsed.
const PARSED: usize = 1 << 20;

/// A payload for people, cut to a number of characters. Values of members of JSON whose names mean [secrets](is_secret) are
/// `"hidden"`, and so is the rest of a line of text, or of a text in JSON, behind such a name and `=`, `:` or `>`. Numbers of JSON
/// are those that an `f64` can hold, and of members with one name the last one is left: the payload itself has them all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "format", content = "text", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Pretty {
    /// JSON, with indents.
    Json(String),
    /// Other text in UTF-8.
    Text(String),
    /// Bytes in hexadecimal.
    Hex(String),
}

impl Pretty {
    /// Returns the payload as text of at most `limit` characters, and whether it was cut.
    pub fn of(payload: &[u8], limit: usize) -> (Self, bool) {
        let Ok(text) = std::str::from_utf8(payload) else {
            let (shown, rest) = payload.split_at_checked(limit / 2).unwrap_or((payload, &[]));
            return (Self::Hex(hex::encode(shown)), !rest.is_empty());
        };
        let json = (payload.len() <= PARSED).then(|| serde_json::from_str::<Value>(text).ok()).flatten();
        if let Some(mut json) = json.filter(|json| json.is_object() || json.is_array()) {
            hide(&mut json);
            let (shown, is_cut) = lines(&format!("{json:#}"), limit);
            return (Self::Json(shown), is_cut);
        }
        // Only as far as it may be shown, and a word that begins there.
        let end = text.char_indices().nth(limit.saturating_add(1)).map_or(text.len(), |(end, _)| end);
        let (shown, is_cut) = lines(&hidden(&text[..end]), limit);
        (Self::Text(shown), is_cut || end < text.len())
    }

    /// The text.
    pub fn text(&self) -> &str {
        match self {
            Self::Json(text) | Self::Text(text) | Self::Hex(text) => text,
        }
    }
}

/// Makes each line harmless, and cuts the whole.
fn lines(text: &str, limit: usize) -> (String, bool) {
    let end = text.char_indices().nth(limit).map_or(text.len(), |(end, _)| end);
    let shown = text[..end].lines().map(|line| harmless(line, usize::MAX));
    (shown.collect::<Vec<_>>().join("\n"), end < text.len())
}

fn hide(json: &mut Value) {
    match json {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret(name) { *value = HIDDEN.into() } else { hide(value) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        // Such as a URL, a header, or JSON in a text.
        Value::String(text) => *text = hidden(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Hides the rest of each line behind the name of a secret.
fn hidden(text: &str) -> String {
    let hidden = |line: &str| {
        // In lower case, letters of other alphabets may have another length.
        let lower = line.to_ascii_lowercase();
        let named = SECRETS.iter().filter_map(|part| lower.find(part).map(|place| place + part.len())).min();
        let value = named.and_then(|name| line[name..].find(['=', ':', '>']).map(|place| name + place + 1));
        value.map_or_else(|| line.to_owned(), |value| format!("{}{HIDDEN}", &line[..value]))
    };
    text.split('\n').map(hidden).collect::<Vec<_>>().join("\n")
}

/// Without its payload, the values of its headers, and the answer of its call.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (delivery, time) = (&self.delivery, |time: Option<SystemTime>| time.map(Time));
        let state = match (self.reason, self.calls) {
            (Some(_), _) => "dead",
            (None, Some(_)) => "calling",
            (None, None) => "scheduled",
        };
        let row = json!({
            "id": self.id,
            "handler": self.handler,
            "key": if self.identity.has_key() { self.identity.key.to_string() } else { String::new() },
            "state": state,
            "reason": self.reason,
            "deliveries": self.deliveries,
            "attempts": self.attempts,
            "crash_count": self.crash_count,
            "created_at": Time(self.created_at),
            "run_at": Time(self.run_at),
            "locked_until": time(self.locked_until),
            "died_at": time(self.died_at),
            "error": self.error,
            "source": delivery.source(),
            "event_type": delivery.event_type(),
            "message_id": delivery.message_id(),
            "position": delivery.position(),
            "provider_key": self.provider_key,
            "called_at": time(self.called_at),
        });
        row.serialize(serializer)
    }
}

/// The text of headers: secrets are hidden, and bytes that are no text are in hexadecimal.
pub(super) fn headers(row: &Row) -> Vec<(String, String)> {
    let shown = |(name, value): (&str, &[u8])| {
        let mut text = String::new();
        match std::str::from_utf8(value) {
            _ if is_secret(name) => text.push_str(HIDDEN),
            Ok(value) => text.push_str(value),
            Err(_) => {
                let _ = write!(text, "0x{}", hex::encode(value));
            }
        }
        (name.to_owned(), text)
    };
    row.delivery.headers().iter().map(shown).collect()
}
