//! The causes of dead letters: those of one handler and reason whose errors begin alike.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde::{Deserialize, Serialize};

use crate::{Error, Reason, Store};

use super::{Count, Counted, Filter, Operator, Time};

/// How many of the newest dead letters are grouped, over all handlers.
const NEWEST: i64 = 10_000;

/// The causes of dead letters.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Groups {
    /// The causes, those of most dead letters first.
    pub groups: Vec<Group>,
    /// How many dead letters were looked at: of each handler the newest ones, so that a rare one is not hidden by a loud one.
    pub looked: Counted,
}

/// Dead letters of one handler and reason, whose errors have the same first line but for words with digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Group {
    /// The consumer.
    #[serde(default)]
    pub consumer: String,
    /// The handler.
    #[serde(default)]
    pub handler: String,
    /// Why they died.
    pub reason: Reason,
    /// The first line of the error of the newest one, of at most 200 characters.
    pub line: String,
    /// A part that the lines of all have in common, of at most 60 characters, for [`Filter::error`]; empty if there is none of four
    /// bytes.
    #[serde(default)]
    pub error_filter: String,
    /// How many there are among those that were looked at.
    pub count: Counted,
    /// When the first of them died.
    pub first: Time,
    /// When the last of them died.
    pub last: Time,
    /// The id of the newest one.
    pub example: i64,
}

/// The causes of one handler, as the database answers.
#[derive(Deserialize)]
struct OfHandler {
    consumer: String,
    handler: String,
    looked: u64,
    groups: Option<Vec<Group>>,
}

impl<S: Store> Operator<S> {
    /// Returns the causes of the dead letters that match: of the newest 10,000, or of all.
    ///
    /// # Errors
    /// [`Error::Config`] for a filter of rows that are not dead: they have no cause.
    pub async fn groups(&self, filter: &Filter, count: Count) -> Result<Groups, Error> {
        if filter.scheduled {
            return Err(Error::Config("only dead letters have causes: scheduled rows have not failed for good".into()));
        }
        let (many, handlers) = self.matching(filter.handler.as_deref()).await?;
        let each = match count {
            Count::AtLeast => (NEWEST / i64::try_from(many.max(1)).unwrap_or(NEWEST)).max(1),
            Count::Exact => i64::MAX,
        };
        let (question, values) = filter.ask_groups(&handlers, each, count);
        let mut looked = Counted::default();
        let mut groups: HashMap<(String, String, Reason, String), Group> = HashMap::new();
        for OfHandler { consumer, handler, looked: rows, groups: causes } in self.ask(&question, &values).await? {
            let at_least = rows >= each.unsigned_abs();
            looked.add(Counted { rows, at_least });
            for mut group in causes.unwrap_or_default() {
                let constant = constant(&group.line);
                let longest = constant.split(VARIABLE).map(str::trim).max_by_key(|part| part.len());
                let part = longest.filter(|part| part.len() >= 4).unwrap_or_default();
                // It is copied from a table, which cuts what is longer.
                group.error_filter = part.chars().take(60).collect::<String>().trim_end().to_owned();
                (group.consumer, group.handler, group.count.at_least) = (consumer.clone(), handler.clone(), at_least);
                match groups.entry((consumer.clone(), handler.clone(), group.reason, constant)) {
                    Entry::Occupied(mut known) => known.get_mut().add(group),
                    Entry::Vacant(place) => {
                        place.insert(group);
                    }
                }
            }
        }
        let mut groups: Vec<Group> = groups.into_values().collect();
        groups.sort_by_key(|group| Reverse((group.count.rows, group.last, group.example)));
        Ok(Groups { groups, looked })
    }
}

impl Group {
    /// Adds dead letters of the same cause.
    fn add(&mut self, other: Self) {
        self.count.add(other.count);
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
        if other.example > self.example {
            (self.example, self.line) = (other.example, other.line);
        }
    }
}

/// Stands for a word that differs from one message to the next. No error has it: it is a private use character.
const VARIABLE: char = '\u{f8ff}';

/// The line without its words that have a digit in them, as numbers, times and UUIDs have.
fn constant(line: &str) -> String {
    let words = line.split_inclusive(|c: char| !c.is_alphanumeric() && c != '-');
    let is_variable = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    words.map(|word| if is_variable(word) { VARIABLE.to_string() } else { word.to_owned() }).collect()
}
