//! What goes on: consumers, their workers and outboxes, and what of it needs a person.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::store::{OutboxId, Value};
use crate::{Error, Store};

use super::questions;
use super::shown::millis;
use super::workers::MINUTES;
use super::{Finding, Operator, WorkerRow, ago, command_line};

/// How far to count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Count {
    /// To 10,000, along an index: quick on tables of any size.
    #[default]
    AtLeast,
    /// All. It may take a minute.
    Exact,
}

/// Where [`Count::AtLeast`] stops.
const ENOUGH: u64 = 10_000;

impl Count {
    /// The limit of a count, for a question: one more than is shown, so that it is known whether there are more.
    pub(super) fn limit(self) -> Value {
        match self {
            Self::AtLeast => Value::Int(i64::try_from(ENOUGH + 1).ok()),
            Self::Exact => i64::MAX.into(),
        }
    }

    pub(super) fn of(self, rows: u64) -> Counted {
        let at_least = self == Self::AtLeast && rows > ENOUGH;
        Counted { rows: if at_least { ENOUGH } else { rows }, at_least }
    }
}

/// A number of rows. It is shown as `17`, or as `at least 10,000`.
///
/// ```
/// # use idem_core::operator::Counted;
/// assert_eq!(Counted { rows: 10_000, at_least: true }.to_string(), "at least 10,000");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
// Exhaustive: callers add them up.
pub struct Counted {
    /// The number.
    pub rows: u64,
    /// Whether there may be more.
    pub at_least: bool,
}

impl Counted {
    /// Adds another number of rows. The sum is a lower bound if one of both is.
    pub fn add(&mut self, other: Self) {
        self.rows += other.rows;
        self.at_least |= other.at_least;
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.rows.to_string();
        let mut shown = String::new();
        for (place, digit) in digits.chars().enumerate() {
            if place > 0 && (digits.len() - place).is_multiple_of(3) {
                shown.push(',');
            }
            shown.push(digit);
        }
        write!(f, "{}{shown}", if self.at_least { "at least " } else { "" })
    }
}

/// What goes on in a database.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// The consumers, by their names.
    pub consumers: Vec<ConsumerStatus>,
    /// The outboxes, by their names.
    pub outboxes: Vec<OutboxStatus>,
}

/// What goes on with a consumer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// Its name.
    pub consumer: String,
    /// How many workers were seen within 30 seconds.
    #[serde(default)]
    pub alive: u32,
    /// The last complete minute of its workers.
    #[serde(default)]
    pub minute: Rates,
    /// The last sixty minutes.
    #[serde(default)]
    pub hour: Rates,
    /// Processed, duplicates and failed, in each of the last sixty minutes, the newest last.
    #[serde(default)]
    pub series: [Vec<u32>; 3],
    /// Messages that wait or run, without those of calls.
    pub scheduled: Counted,
    /// Dead letters.
    pub dead: Counted,
    /// Messages whose handlers have to make their external call first.
    pub calling: Counted,
    /// Dead letters whose call may have had an effect.
    pub unresolved: Counted,
    /// How long the oldest message that could run has been due.
    #[serde(with = "millis")]
    pub oldest_due: Option<Duration>,
    /// How many deliveries wait behind something that blocks them, in all workers.
    #[serde(default)]
    pub blocked: u32,
    /// How long the first of them has waited.
    #[serde(default, with = "millis")]
    pub blocked_for: Option<Duration>,
    /// Why a worker takes nothing, if one does not.
    #[serde(default)]
    pub paused: Option<String>,
    /// The time since a worker last had one of its handlers.
    #[serde(with = "millis")]
    pub last_seen: Option<Duration>,
}

/// How many messages were processed, were duplicates, and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rates {
    /// Processed; of a relay: published.
    pub processed: u64,
    /// Duplicates.
    pub duplicates: u64,
    /// Failed attempts, and dead letters; of a relay: refused messages.
    pub failed: u64,
}

impl Rates {
    pub(super) fn of([processed, duplicates, failed]: [u32; 3]) -> Self {
        Self { processed: processed.into(), duplicates: duplicates.into(), failed: failed.into() }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.processed += other.processed;
        self.duplicates += other.duplicates;
        self.failed += other.failed;
    }
}

/// What goes on with an outbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutboxStatus {
    #[serde(skip_serializing)]
    number: i32,
    #[serde(skip_serializing)]
    namespace: Uuid,
    /// Its name.
    pub name: String,
    /// Messages that wait to be published.
    pub waiting: Counted,
    /// Dead letters.
    pub dead: Counted,
    /// How long ago the oldest message that waits was staged.
    #[serde(with = "millis")]
    pub oldest: Option<Duration>,
    /// How long ago a relay has last shown that it runs; `None`: never.
    #[serde(with = "millis")]
    pub relay_seen: Option<Duration>,
}

impl OutboxStatus {
    pub(super) fn id(&self) -> OutboxId {
        OutboxId { number: self.number, namespace: self.namespace }
    }

    /// Says that messages wait which no relay has looked at for a minute, if it is so.
    pub(super) fn unread(&self) -> Option<String> {
        let seen = match self.relay_seen {
            _ if self.waiting.rows == 0 => return None,
            Some(seen) if seen <= TOO_LONG => return None,
            Some(seen) => format!("for {}", ago(seen)),
            None => "ever".to_owned(),
        };
        Some(format!(
            "{} messages wait in the outbox {}, and no relay has looked at it {seen}",
            self.waiting, self.name
        ))
    }
}

/// For how long a message may be due, a delivery blocked or an outbox unread until a person is needed.
const TOO_LONG: Duration = Duration::from_secs(60);

/// Reads a number of rows, of which it is not said yet whether it is cut.
impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        u64::deserialize(deserializer).map(|rows| Self { rows, at_least: false })
    }
}

impl<S: Store> Operator<S> {
    /// Returns what goes on with all consumers, or with the one of this value, and with all outboxes.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn status(&self, count: Count) -> Result<Status, Error> {
        let only = Value::Text(self.consumer.clone());
        let mut consumers: Vec<ConsumerStatus> = self.ask(&questions::counts(count), &[only, count.limit()]).await?;
        let workers = self.workers().await?;
        for consumer in &mut consumers {
            let ConsumerStatus { scheduled, dead, calling, unresolved, .. } = consumer;
            for counted in [scheduled, dead, calling, unresolved] {
                *counted = count.of(counted.rows);
            }
            consumer.series = [(); 3].map(|()| vec![0; MINUTES]);
            workers.iter().for_each(|worker| consumer.count(worker));
        }
        Ok(Status { consumers, outboxes: self.outboxes(count).await? })
    }

    /// Returns the outboxes of the database, by their names.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn outboxes(&self, count: Count) -> Result<Vec<OutboxStatus>, Error> {
        let mut outboxes: Vec<OutboxStatus> = self.ask(&questions::outboxes(count), &[count.limit()]).await?;
        for OutboxStatus { waiting, dead, .. } in &mut outboxes {
            for counted in [waiting, dead] {
                *counted = count.of(counted.rows);
            }
        }
        Ok(outboxes)
    }
}

impl ConsumerStatus {
    fn count(&mut self, worker: &WorkerRow) {
        if worker.kind != "worker" || worker.name != self.consumer {
            return;
        }
        self.minute.add(worker.minute);
        self.hour.add(worker.hour);
        for (age, counted) in worker.minutes() {
            for (series, number) in self.series.iter_mut().zip(counted) {
                if let Some(sum) = series.iter_mut().rev().nth(age) {
                    *sum = sum.saturating_add(number);
                }
            }
        }
        if worker.alive {
            self.alive += 1;
            self.blocked += worker.blocked;
            self.blocked_for = self.blocked_for.max(worker.report.blocked_for);
            self.paused = self.paused.take().or_else(|| worker.paused.clone());
        }
    }
}

impl Status {
    /// What needs a person, each with the next command; nothing if all is well.
    pub fn needs(&self) -> Vec<Finding> {
        let consumers = self.consumers.iter().flat_map(ConsumerStatus::needs);
        consumers.chain(self.outboxes.iter().flat_map(OutboxStatus::needs)).collect()
    }
}

impl ConsumerStatus {
    fn needs(&self) -> Vec<Finding> {
        let consumer = &self.consumer;
        let only = format!("--consumer={consumer}");
        let of = |words: &[&str]| command_line(&[words, &[only.as_str()][..]].concat(), &[]);
        let too_long = |time: Option<Duration>| time.filter(|time| *time > TOO_LONG);
        let mut needs = Vec::new();
        let mut need = |what: String, command: String| needs.push(Finding::new(what, command));
        if self.dead.rows > 0 {
            need(format!("{consumer} has {} dead letters", self.dead), of(&["idem", "dead", "group"]));
        }
        if self.unresolved.rows > 0 {
            let what =
                format!("of {} messages of {consumer} it is unknown whether their call had an effect", self.unresolved);
            need(what, of(&["idem", "calls"]));
        }
        if self.alive == 0 && self.scheduled.rows + self.calling.rows > 0 {
            let seen =
                self.last_seen.map(|seen| format!(", the last one was seen {} ago", ago(seen))).unwrap_or_default();
            let what = format!("messages of {consumer} wait, and no worker of it is alive{seen}");
            need(what, of(&["idem", "workers"]));
        } else if let Some(due) = too_long(self.oldest_due) {
            let what = format!("a message of {consumer} has been due for {}", ago(due));
            need(what, of(&["idem", "scheduled"]));
        }
        if let Some(time) = too_long(self.blocked_for) {
            let what = format!("{} deliveries of {consumer} are blocked, the first for {}", self.blocked, ago(time));
            need(what, of(&["idem", "workers"]));
        }
        if let Some(why) = &self.paused {
            need(format!("a worker of {consumer} takes nothing ({why})"), of(&["idem", "workers"]));
        }
        needs
    }
}

impl OutboxStatus {
    fn needs(&self) -> impl Iterator<Item = Finding> {
        let unread = self.unread().map(|what| Finding::new(what, "idem doctor"));
        let dead = (self.dead.rows > 0).then(|| {
            let list = command_line(&["idem", "outbox", "list"], &[self.name.as_str()]);
            Finding::new(format!("the outbox {} has {} dead letters", self.name, self.dead), list)
        });
        unread.into_iter().chain(dead)
    }
}
