//! The rows of the table `workers`: which workers and relays run, and what they have done in the last hour. They are for people, and
//! no message depends on them.
//!
//! All workers and relays of a store in one process write their rows in one statement every ten seconds. The one whose time comes
//! first writes them.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::runtime::{Health, within};
use crate::store::{Question, Value};
use crate::{Outcome, ReplayWindow, Store};

/// How often a process writes its rows. A worker counts as alive for three times as long, so that nothing is to be seen of one
/// statement that fails.
const EVERY: Duration = Duration::from_secs(10);

/// How many minutes are kept.
const MINUTES: usize = 60;

/// How long the statement may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The workers and relays of a store in this process, which write what people see of them. The clones of a store share it.
#[derive(Clone, Default)]
pub struct Roster(Arc<Mutex<Members>>);

#[derive(Default)]
struct Members {
    all: Vec<Arc<Entry>>,
    /// When they were last written. `None`: one has joined since, and is written as soon as possible.
    written: Option<Instant>,
}

/// A worker or a relay in the roster. When it is dropped, its row stays with its counts, and is after half a minute too old to
/// count as alive.
pub(crate) struct Member {
    roster: Roster,
    entry: Arc<Entry>,
}

struct Entry {
    instance: Uuid,
    kind: &'static str,
    name: String,
    version: String,
    window: ReplayWindow,
    health: Health,
    joined: Instant,
    /// What was counted since the minutes were last brought up to date, in the order of [`Counted`].
    counts: [AtomicU32; 3],
    minutes: Mutex<Minutes>,
    waiting: Mutex<Waiting>,
    /// Why it waits for its outbox.
    full_outbox: Mutex<Option<String>>,
}

/// How a message is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Its effect is committed, or, of a relay, the broker has confirmed it.
    Processed,
    /// It was processed before.
    Duplicate,
    /// It has failed, whether it is tried again or not.
    Failed,
}

impl Counted {
    /// Returns how an outcome is counted. A message that was stored before its first run is counted when it has run.
    pub(crate) fn of(outcome: &Outcome) -> Option<Self> {
        match outcome {
            Outcome::Processed => Some(Self::Processed),
            Outcome::Duplicate => Some(Self::Duplicate),
            stored if stored.is_stored() => None,
            Outcome::Scheduled { .. } | Outcome::Dead { .. } => Some(Self::Failed),
        }
    }
}

/// The deliveries of a worker that wait behind another one of their key.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waiting {
    /// How many there are.
    pub(crate) blocked: u32,
    /// Since when the oldest one waits.
    pub(crate) since: Option<Instant>,
}

/// The counts of the last minutes, the current minute first.
struct Minutes {
    began: Instant,
    counts: [[u32; MINUTES]; 3],
}

impl Roster {
    /// Adds a worker (`"worker"`, its consumer) or a relay (`"relay"`, its outbox). `version` is that of the program.
    pub(crate) fn join(
        &self,
        (kind, name): (&'static str, &str),
        version: &str,
        window: ReplayWindow,
        health: &Health,
    ) -> Member {
        let now = Instant::now();
        let entry = Arc::new(Entry {
            instance: Uuid::new_v4(),
            kind,
            name: name.to_owned(),
            version: crate::error::clean(version),
            window,
            health: health.clone(),
            joined: now,
            counts: Default::default(),
            minutes: Mutex::new(Minutes { began: now, counts: [[0; MINUTES]; 3] }),
            waiting: Mutex::default(),
            full_outbox: Mutex::default(),
        });
        let mut members = self.0.lock();
        members.all.push(entry.clone());
        members.written = None;
        Member { roster: self.clone(), entry }
    }

    /// Returns the rows of all members as the value of the statement that writes them, unless somebody has done that in the last
    /// ten seconds.
    pub(crate) fn due(&self) -> Option<Value> {
        let (mut members, now) = (self.0.lock(), Instant::now());
        if members.written.is_some_and(|written| now.duration_since(written) < EVERY) {
            return None;
        }
        members.written = Some(now);
        let host = gethostname::gethostname();
        let host = crate::error::clean(&host.to_string_lossy());
        let rows: serde_json::Value = members.all.iter().map(|entry| entry.shown(&host, now)).collect();
        Some(rows.to_string().into())
    }
}

impl Member {
    /// Counts a message. Each delivery pays for this one addition.
    pub(crate) fn count(&self, counted: Counted) {
        self.entry.counts[counted as usize].fetch_add(1, Relaxed);
    }

    /// Records which deliveries are blocked.
    pub(crate) fn report(&self, waiting: Waiting) {
        *self.entry.waiting.lock() = waiting;
    }

    /// Records why it waits until messages of its outbox are published, if it does.
    pub(crate) fn report_outbox(&self, full: Option<String>) {
        *self.entry.full_outbox.lock() = full;
    }

    /// Writes the rows of this process at once and then every ten seconds, until the future is dropped. A failure is no outage: it
    /// changes only what people see.
    pub(crate) async fn beats<S: Store>(&self, store: &S) -> Infallible {
        loop {
            if let Some(rows) = self.roster.due()
                && let Err(error) = within(ANSWER, store.ask(&beat(), &[rows])).await
            {
                tracing::debug!(error, "the rows of `workers` were not written; they are written again in ten seconds");
            }
            sleep(EVERY).await;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.roster.0.lock().all.retain(|other| !Arc::ptr_eq(other, &self.entry));
    }
}

impl Entry {
    /// Its row of the table, with durations in milliseconds.
    fn shown(&self, host: &str, now: Instant) -> serde_json::Value {
        let counted = self.counts.each_ref().map(|count| count.swap(0, Relaxed));
        let [processed, duplicates, failed] = self.minutes.lock().add(now, counted).map(Vec::from);
        let Waiting { blocked, since } = *self.waiting.lock();
        let health = &self.health;
        let paused = health.paused().or_else(|| health.unsubscribed()).or_else(|| self.full_outbox.lock().clone());
        // For how many seconds the broker may deliver a message again, if that is known.
        let window = match self.window {
            ReplayWindow::Within(window) => Some(window.as_secs()),
            ReplayWindow::Unlimited => Some(u64::MAX),
            ReplayWindow::Unknown => None,
        };
        json!({
            "instance": self.instance.simple().to_string(),
            "kind": self.kind,
            "name": self.name,
            "host": host,
            "pid": std::process::id(),
            "version": self.version,
            "age": millis(now.duration_since(self.joined)),
            "report": {
                "blocked": blocked,
                "blocked_for": since.map(|since| millis(now.duration_since(since))),
                "processed": processed,
                "duplicates": duplicates,
                "failed": failed,
                "paused": paused,
                "window": window,
            },
        })
    }
}

impl Minutes {
    /// Lets whole minutes pass, adds to the current one, and returns all. What was counted across the end of a minute counts for
    /// the one that follows.
    fn add(&mut self, now: Instant, counted: [u32; 3]) -> [[u32; MINUTES]; 3] {
        let passed = now.duration_since(self.began).as_secs() / 60;
        self.began += Duration::from_secs(60 * passed);
        let passed = usize::try_from(passed).unwrap_or(MINUTES).min(MINUTES);
        for (minutes, counted) in self.counts.iter_mut().zip(counted) {
            minutes.rotate_right(passed);
            minutes[..passed].fill(0);
            minutes[0] = minutes[0].saturating_add(counted);
        }
        self.counts
    }
}

/// Writes these rows ($1: as a JSON array). Returns an empty answer for each.
fn beat() -> Question {
    let postgres = "INSERT INTO {schema}.workers AS w (instance, kind, name, host, pid, version, started_at, report)
        SELECT instance, kind, name, host, pid, version, now() - age * interval '1 millisecond', report
        FROM json_to_recordset($1::json) AS r (instance uuid, kind text, name text, host text, pid int, version text, age bigint,
            report json)
        ORDER BY instance
        ON CONFLICT (instance, kind, name) DO UPDATE SET seen_at = now(), report = excluded.report
        RETURNING '{}'::text";
    // Without a condition, SQLite takes ON CONFLICT for a part of the join (SQLite manual, "UPSERT", 2.2).
    let sqlite = r#"INSERT INTO "idem_workers" (instance, kind, name, host, pid, version, started_at, seen_at, report)
        SELECT unhex(r.value ->> 'instance'), r.value ->> 'kind', r.value ->> 'name', r.value ->> 'host', r.value ->> 'pid',
            r.value ->> 'version', {now} - (r.value ->> 'age'), {now}, r.value -> 'report'
        FROM json_each($1) AS r WHERE true
        ON CONFLICT (instance, kind, name) DO UPDATE SET seen_at = excluded.seen_at, report = excluded.report
        RETURNING '{}'"#;
    Question::new("beat", postgres, sqlite).writes()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Shows how many members there are.
impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Roster").field(&format_args!("{} members", self.0.lock().all.len())).finish()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::Reason;

    const SECOND: Duration = Duration::from_secs(1);

    fn join(roster: &Roster, kind: &'static str, name: &str) -> Member {
        roster.join((kind, name), "1.2.3", ReplayWindow::Unknown, &Health::new())
    }

    /// The rows that are to be written now.
    fn rows(roster: &Roster) -> Option<Vec<serde_json::Value>> {
        let Value::Text(Some(rows)) = roster.due()? else { panic!("rows are a text") };
        Some(serde_json::from_str(&rows).unwrap())
    }

    /// The counts of a member that are not zero, each with its minute.
    fn counts(row: &serde_json::Value, kind: &str) -> Vec<(usize, u64)> {
        let minutes = row["report"][kind].as_array().unwrap();
        assert_eq!(minutes.len(), MINUTES);
        let minutes = minutes.iter().map(|count| count.as_u64().unwrap()).enumerate();
        minutes.filter(|(_, count)| *count > 0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_rows_of_all_are_due_once_in_ten_seconds_and_when_one_joins() {
        let roster = Roster::default();
        let _members =
            [join(&roster, "worker", "billing"), join(&roster, "worker", "billing"), join(&roster, "relay", "a")];
        let first = rows(&roster.clone()).unwrap();
        assert_eq!(first.len(), 3);
        assert_ne!(first[0]["instance"], first[1]["instance"], "two workers of one consumer are two rows");
        assert!(rows(&roster).is_none());
        advance(EVERY - SECOND).await;
        assert!(rows(&roster).is_none());
        advance(SECOND).await;
        assert_eq!(rows(&roster).unwrap().len(), 3);
        assert!(rows(&roster).is_none());
        let _late = join(&roster, "worker", "shop");
        assert_eq!(rows(&roster).unwrap().len(), 4, "it is not to be missed for ten seconds");
        assert!(rows(&roster).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_has_left_is_not_written_again() {
        let roster = Roster::default();
        let [gone, stays] = ["gone", "stays"].map(|name| join(&roster, "worker", name));
        assert_eq!(format!("{roster:?}"), "Roster(2 members)");
        drop(gone);
        let rows = rows(&roster).unwrap();
        assert_eq!((rows.len(), &rows[0]["name"]), (1, &json!("stays")));
        drop(stays);
    }

    #[tokio::test(start_paused = true)]
    async fn counts_grow_older_by_minutes_and_are_forgotten_after_an_hour() {
        let roster = Roster::default();
        let member = join(&roster, "worker", "billing");
        member.count(Counted::Processed);
        member.count(Counted::Processed);
        member.count(Counted::Failed);
        assert_eq!(counts(&rows(&roster).unwrap()[0], "processed"), [(0, 2)]);
        advance(30 * SECOND).await;
        member.count(Counted::Processed);
        assert_eq!(counts(&rows(&roster).unwrap()[0], "processed"), [(0, 3)], "it is the same minute");
        advance(30 * SECOND).await;
        assert_eq!(counts(&rows(&roster).unwrap()[0], "processed"), [(1, 3)]);
        advance(10 * SECOND).await;
        member.count(Counted::Duplicate);
        let row = &rows(&roster).unwrap()[0];
        let each = ["processed", "duplicates", "failed"].map(|kind| counts(row, kind));
        assert_eq!(each, [vec![(1, 3)], vec![(0, 1)], vec![(1, 1)]]);
        // Two hours without a statement, as in an outage.
        advance(50 * SECOND + 58 * 60 * SECOND).await;
        assert_eq!(counts(&rows(&roster).unwrap()[0], "duplicates"), [(59, 1)]);
        advance(7200 * SECOND).await;
        member.count(Counted::Processed);
        let row = &rows(&roster).unwrap()[0];
        let each = ["processed", "duplicates", "failed"].map(|kind| counts(row, kind));
        assert_eq!(each, [vec![(0, 1)], vec![], vec![]]);
    }

    #[test]
    fn a_message_is_counted_when_it_has_run() {
        let scheduled = |attempt| Outcome::Scheduled { attempt, due: SECOND };
        for (outcome, counted) in [
            (Outcome::Processed, Some(Counted::Processed)),
            (Outcome::Duplicate, Some(Counted::Duplicate)),
            (scheduled(0), None),
            (scheduled(1), Some(Counted::Failed)),
            (Outcome::dead(Reason::Conflict), Some(Counted::Failed)),
        ] {
            assert_eq!(Counted::of(&outcome), counted, "{outcome:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_says_who_it_is_and_what_waits() {
        let (roster, health) = (Roster::default(), Health::new());
        let window = ReplayWindow::Within(3600 * SECOND);
        let member = roster.join(("worker", "billing"), "1.2\u{7}", window, &health);
        let _relay = roster.join(("relay", "shop"), "1", ReplayWindow::Unlimited, &Health::new());
        member.report(Waiting { blocked: 2, since: Some(Instant::now()) });
        health.pause("the keys are wrong".to_owned());
        advance(5 * SECOND).await;
        let now = || rows(&roster).unwrap();
        let rows = now();
        let of = |names: [&str; 4]| names.map(|name| rows[0][name].clone());
        let pid = std::process::id();
        assert_eq!(
            of(["kind", "name", "version", "pid"]),
            [json!("worker"), json!("billing"), json!("1.2\\u{7}"), json!(pid)]
        );
        assert_eq!((rows[0]["instance"].as_str().unwrap().len(), &rows[0]["age"]), (32, &json!(5000)));
        assert!(!rows[0]["host"].as_str().unwrap().is_empty());
        let report = &rows[0]["report"];
        let of = ["blocked", "blocked_for", "paused", "window"].map(|name| report[name].clone());
        let said = [json!(2), json!(5000), json!("the keys are wrong"), json!(3600)];
        assert_eq!(of, said);
        health.resume();
        member.report_outbox(Some("the outbox is full".to_owned()));
        advance(EVERY).await;
        let full = now();
        assert_eq!(full[0]["report"]["paused"], "the outbox is full");
        let of = ["blocked_for", "paused", "window"].map(|name| full[1]["report"][name].clone());
        assert_eq!(of, [json!(null), json!(null), json!(u64::MAX)]);
        // Sixty empty minutes of three kinds are most of it.
        assert!(rows[1].to_string().len() < 900, "{}", rows[1].to_string().len());
    }
}
