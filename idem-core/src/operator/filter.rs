//! Which rows an operator means, as conditions of a question.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Reason;
use crate::key::text::keys;
use crate::store::{Question, Value};

use super::Time;
use super::questions::{self, Seen};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Reads a time as a person says it: a duration (`2h`, which means ago, by the clock of this machine), `today` and `yesterday` (the
/// beginning of that day, in UTC), a date, or a date and time in UTC.
///
/// ```
/// # use idem_core::operator::Time;
/// assert_eq!("2026-11-29T03:00Z".parse::<Time>(), "2026-11-29 03:00:00".parse());
/// assert!("2h 30min".parse::<Time>().is_ok() && "tomorrow".parse::<Time>().is_err());
/// ```
impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let now = SystemTime::now();
        let days = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / DAY.as_secs();
        let midnight = |day: u64| Self(UNIX_EPOCH + Duration::from_secs(day * DAY.as_secs()));
        match text {
            "today" => return Ok(midnight(days)),
            "yesterday" => return Ok(midnight(days.saturating_sub(1))),
            _ => {}
        }
        if let Ok(ago) = humantime::parse_duration(text) {
            return Ok(Self(now.checked_sub(ago).unwrap_or(UNIX_EPOCH)));
        }
        let plain = text.strip_suffix('Z').unwrap_or(text);
        let missing = match plain.len() {
            10 => "T00:00:00",
            16 => ":00",
            _ => "",
        };
        let time = humantime::parse_rfc3339_weak(&format!("{plain}{missing}"));
        time.map(Self).map_err(|_| {
            format!(
                "{text:?} is no time: write a duration (2h), today, yesterday, or a time in UTC (2026-11-29T03:00Z)"
            )
        })
    }
}

/// Which rows to list, to replay or to discard. By default all dead letters; each condition leaves fewer.
///
/// ```
/// # use idem_core::{Reason, operator::Filter};
/// let filter = Filter::new().handler("order_paid").reason(Reason::Exhausted).error("timeout");
/// assert!(Filter::new().is_all() && !filter.is_all());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// Rows that wait or run, those of calls included, instead of dead ones.
    pub scheduled: bool,
    /// Only rows of this handler: its name, a former one, or `consumer/name`.
    pub handler: Option<String>,
    /// Only rows that died for this reason.
    pub reason: Option<Reason>,
    /// Only rows with this key, written as the log shows it: its text, a UUID, `(part, part)` or `part,part` for a composite key,
    /// or `0x` and its bytes in hexadecimal.
    pub key: Option<String>,
    /// Only rows whose error contains this text. Upper and lower case differ.
    pub error: Option<String>,
    /// Only rows whose payload contains the bytes of this text, such as `"order_id":7`. Payloads above 1 MiB are not searched.
    pub payload: Option<String>,
    /// Only rows that died since then; that were stored since then, if they are not dead.
    pub since: Option<Time>,
    /// Only rows that died before; that were stored before, if they are not dead.
    pub until: Option<Time>,
    /// Only rows with these ids; none: with any.
    pub ids: Vec<i64>,
}

impl Filter {
    /// All dead letters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Rows that wait or run, those of calls included, instead of dead ones.
    pub fn scheduled(self) -> Self {
        Self { scheduled: true, ..self }
    }

    /// Only rows of this handler: its name, a former one, or `consumer/name`.
    pub fn handler(self, name: impl Into<String>) -> Self {
        Self { handler: Some(name.into()), ..self }
    }

    /// Only rows that died for this reason.
    pub fn reason(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Only rows with this key, as the log writes it.
    pub fn key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    /// Only rows whose error contains this text.
    pub fn error(self, part: impl Into<String>) -> Self {
        Self { error: Some(part.into()), ..self }
    }

    /// Whether it has no condition, so that it means all dead letters of the operator, or all scheduled rows.
    pub fn is_all(&self) -> bool {
        *self == Self { scheduled: self.scheduled, ..Self::default() }
    }

    /// How many rows a window has: few if their payloads are read, and no more than asked for if all of them match.
    fn window(&self, wanted: u32) -> u32 {
        let is_compared = self.reason.is_some() || self.error.is_some() || self.since.is_some() || self.until.is_some();
        match self.payload {
            Some(_) => 1_000,
            None if is_compared => 10_000,
            None => wanted.clamp(1, 10_000),
        }
    }

    /// The question for one window of rows of these handlers, a JSON array, before this id.
    pub(crate) fn ask_ids(
        &self,
        handlers: &str,
        before: i64,
        wanted: u32,
        died_before: Option<Time>,
    ) -> (Question, Vec<Value>) {
        let window = self.window(wanted);
        let mut values = Values(vec![before.into(), i64::from(window).into(), handlers.into()]);
        let mut inner = (if self.scheduled { "i.state <> 'dead'" } else { "i.state = 'dead'" }).to_owned();
        let mut which = Vec::new();
        let is_by_id = !self.ids.is_empty();
        if is_by_id {
            values.bind(serde_json::json!(self.ids).to_string());
        }
        if let Some(key) = &self.key {
            inner.push_str(&format!(" AND {}", is_one_of("i.key", key, &mut values)));
        }
        let seen = if is_by_id {
            which.extend([inner.clone(), "i.handler_id {any $3}".to_owned()]);
            Seen::Ids
        } else if self.key.is_some() {
            Seen::Each(&inner)
        } else if self.scheduled {
            which.push("i.handler_id {any $3}".to_owned());
            Seen::Walked
        } else {
            Seen::Dead
        };
        self.compare(&mut which, &mut values);
        if let Some(cut) = died_before {
            which.push(format!("i.died_at < {{time {}}}", values.bind(cut.millis())));
        }
        let all = if which.is_empty() { "1 = 1".to_owned() } else { which.join(" AND ") };
        (questions::ids(seen, &all, self.payload.is_some()), values.0)
    }

    /// The question for the causes of the newest dead letters of each of these handlers.
    pub(super) fn ask_groups(&self, handlers: &str, each: i64, count: super::Count) -> (Question, Vec<Value>) {
        let mut values = Values(vec![handlers.into(), each.into()]);
        let mut which = vec!["i.state = 'dead'".to_owned()];
        if !self.ids.is_empty() {
            let ids = values.bind(serde_json::json!(self.ids).to_string());
            which.push(format!("i.id IN (SELECT k.id FROM {{list {ids}}} AS k)"));
        }
        if let Some(key) = &self.key {
            which.push(is_one_of("i.key", key, &mut values));
        }
        self.compare(&mut which, &mut values);
        (questions::groups(&which.join(" AND "), count), values.0)
    }

    /// The conditions with which the rows of a window are compared.
    fn compare(&self, which: &mut Vec<String>, values: &mut Values) {
        if let Some(reason) = self.reason {
            which.push(format!("i.reason = {}", values.bind(reason.as_str())));
        }
        let dated = if self.scheduled { "i.created_at" } else { "i.died_at" };
        for (time, compared) in [(self.since, ">="), (self.until, "<")] {
            which.extend(time.map(|time| format!("{dated} {compared} {{time {}}}", values.bind(time.millis()))));
        }
        if let Some(error) = &self.error {
            // As the tables have it: PostgreSQL's text has no NUL.
            which.push(format!("{{find}}(i.error, {}) > 0", values.bind(error.replace('\0', "\\0"))));
        }
        if let Some(payload) = &self.payload {
            which.push(questions::searched());
            which.push(format!("{{find}}(i.payload, {}) > 0", values.bind(payload.as_bytes().to_vec())));
        }
    }
}

/// The values of a question, in the order of their numbers.
struct Values(Vec<Value>);

impl Values {
    /// Appends a value. Returns its place in the text.
    fn bind(&mut self, value: impl Into<Value>) -> String {
        self.0.push(value.into());
        format!("${}", self.0.len())
    }
}

/// The condition that a column has one of the keys that a text stands for.
fn is_one_of(column: &str, text: &str, values: &mut Values) -> String {
    let keys = keys(text);
    let places: Vec<String> = keys.iter().map(|key| values.bind(key.as_bytes().to_vec())).collect();
    if places.is_empty() { "1 = 0".to_owned() } else { format!("{column} IN ({})", places.join(", ")) }
}
