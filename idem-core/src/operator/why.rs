//! What a delivery of a message would be now, and why: decided by the rule by which the pipeline classifies deliveries.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::age::too_old;
use crate::key::text::keys;
use crate::store::{Claimed, ExistingClaim, Identity, KnownHandler, REQUEST, Resolution, Row, Value};
use crate::take_over::{Classified, classify};
use crate::{Delivery, Error, Fingerprint, Key, Reason, Store, cloud_event};

use super::others::key_of;
use super::questions;
use super::shown::millis;
use super::{Operation, Operator, Time, ago};

/// A message that a person asks about.
///
/// ```
/// # use idem_core::operator::Asked;
/// let mut asked = Asked::new("billing/order_paid", "e-7");
/// asked.payload = Some(r#"{"order_id": 7}"#.into());
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Asked {
    /// The name of the handler, or `consumer/name`.
    pub handler: String,
    /// The key, as the log writes it.
    pub key: String,
    /// The payload, to tell a copy from another message with this key.
    pub payload: Option<Bytes>,
    /// When it was published, by the broker's clock, to tell whether it is too old.
    pub published: Option<SystemTime>,
}

impl Asked {
    /// The message with this key, for this handler.
    pub fn new(handler: impl Into<String>, key: impl Into<String>) -> Self {
        Self { handler: handler.into(), key: key.into(), payload: None, published: None }
    }
}

/// What a delivery of a message would be now, and what is known of it.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Why {
    /// The handler.
    pub handler: String,
    /// Its consumer.
    pub consumer: String,
    /// The key that is answered for, as the log writes it.
    pub key: String,
    /// What a delivery would be.
    pub verdict: Verdict,
    /// Whether the payload that was given is that of the claim.
    pub compared: Compared,
    /// The claim of the key.
    pub claim: Option<ClaimShown>,
    /// The rows with this key, at most 20: that of the claim first, then the newest conflicts.
    pub rows: Vec<Row>,
    /// The last five operations on messages with this key, the newest first.
    pub operations: Vec<Operation>,
    /// What a person should know besides.
    pub hints: Vec<String>,
}

/// A claim: the database has taken the message over.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ClaimShown {
    /// When the message was processed; `None`: it is in the inbox.
    pub processed_at: Option<Time>,
    /// Until when it is kept, and up to a twentieth of the retention longer; `None`: for ever, or while there is a row.
    pub kept_until: Option<Time>,
    /// The fingerprint of the message, in hexadecimal.
    pub fingerprint: String,
}

/// What a delivery would be now. A message that a worker runs at this moment has no claim yet, and so it would run.
// Exhaustive: it has one variant for each class of the pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Verdict {
    /// It would run.
    WouldRun,
    /// It was processed or discarded before, and nothing would run.
    Duplicate {
        /// The time since then, in milliseconds.
        #[serde(with = "millis")]
        age: Duration,
        /// Whether it was a dead letter that an operator has discarded.
        discarded: bool,
    },
    /// Another message has its key: it would be a dead letter.
    Conflict {
        /// The error of the dead letter.
        why: String,
    },
    /// The message is in the inbox, and nothing would run for another delivery of it.
    Waiting {
        /// The id of the row; `None` if it was removed at this moment.
        row: Option<i64>,
        /// Whether it is a dead letter, which waits for a person.
        dead: bool,
    },
    /// Its claim may have been pruned, so it would be a dead letter.
    TooOld {
        /// The error of the dead letter.
        why: String,
    },
}

impl Verdict {
    /// The exit code of `idem why`: 10 would run, 11 duplicate, 12 conflict, 13 waiting, 14 too old.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::WouldRun => 10,
            Self::Duplicate { .. } => 11,
            Self::Conflict { .. } => 12,
            Self::Waiting { .. } => 13,
            Self::TooOld { .. } => 14,
        }
    }

    /// What it means for a delivery that the pipeline classifies so. `rows`: those with its key, that of the claim first.
    pub(crate) fn of(classified: Classified, rows: &[Row]) -> Self {
        match classified {
            // The pipeline starts over if a claim was removed meanwhile, and then claims the key.
            Classified::New | Classified::Gone => Self::WouldRun,
            Classified::TooOld(why) => Self::TooOld { why },
            Classified::Duplicate(Some(age)) => Self::Duplicate { age, discarded: false },
            Classified::Duplicate(None) => {
                let row = rows.iter().find(|row| row.reason != Some(Reason::Conflict));
                Self::Waiting { row: row.map(|row| row.id), dead: row.is_some_and(|row| row.reason.is_some()) }
            }
            Classified::Conflict(why) => Self::Conflict { why },
        }
    }
}

/// Whether a payload is that of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Compared {
    /// It is; of a CloudEvent in JSON, the data alone counts.
    Equal,
    /// It is not.
    Different,
    /// No payload was given.
    NotGiven,
    /// The handler has a fingerprint of its own, so payloads tell nothing.
    OwnFingerprint,
    /// There is no claim.
    NoClaim,
}

/// What the database has of one key.
#[derive(Deserialize)]
struct Known {
    claimed: u8,
    fingerprint: Option<String>,
    processed_at: Option<Time>,
    #[serde(with = "millis")]
    age: Option<Duration>,
    #[serde(with = "millis")]
    retention: Option<Duration>,
    pruned_through: Option<Time>,
    /// The bytes of one of the handler's keys, in hexadecimal.
    sample: Option<String>,
    rows: Option<Vec<i64>>,
    operations: Option<Vec<Operation>>,
}

impl Known {
    fn is_there(&self) -> bool {
        self.claimed != 0 || self.rows.as_ref().is_some_and(|rows| !rows.is_empty())
    }

    /// Whether the claim has its date from a dead letter that was discarded. A conflict that was discarded has another claim.
    fn was_discarded(&self) -> bool {
        let is_it = |operation: &Operation| {
            // Both times are those of one statement, or of one transaction.
            operation.action == Resolution::Discard.action()
                && operation.reason.as_deref() != Some(Reason::Conflict.as_str())
                && self.processed_at.is_some_and(|at| (at.millis() - operation.at.millis()).abs() < 1_000)
        };
        self.operations.iter().flatten().any(is_it)
    }

    fn fingerprint(&self) -> Option<Fingerprint> {
        let bytes = self.fingerprint.as_deref().and_then(|digits| hex::decode(digits).ok()).unwrap_or_default();
        (self.claimed != 0).then(|| Fingerprint::stored(&bytes))
    }
}

impl<S: Store> Operator<S> {
    /// Returns what a delivery of a message would be now, and what is known of it. Nothing is written.
    ///
    /// If the text of the key may stand for several keys, it answers for the first that has a claim or a row.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no such handler, as for [`handler`](Self::handler), or if the text is no key.
    pub async fn why(&self, asked: &Asked) -> Result<Why, Error> {
        let handler = self.handler(&asked.handler).await?;
        let mut found = None;
        for key in keys(&asked.key) {
            let known = self.known(&handler, &key).await?;
            let is_there = known.is_there();
            if is_there || found.is_none() {
                found = Some((key, known));
            }
            if is_there {
                break;
            }
        }
        let shown: String = asked.key.chars().take(40).collect();
        let no_key = || Error::Config(format!("{shown:?} cannot be read as a key, which has 1 to 255 bytes"));
        let (key, known) = found.ok_or_else(no_key)?;

        let rows = self.read(known.rows.as_deref().unwrap_or_default(), false).await?;
        let through = known.pruned_through.map(|time| time.0);
        let (claimed, found) = match known.fingerprint() {
            Some(fingerprint) => {
                let claim = ExistingClaim { fingerprint, age: known.age };
                (Claimed::Found(Some(claim)), Some(fingerprint))
            }
            None => (Claimed::New { pruned_through: through }, None),
        };
        let (fingerprint, compared) = compare(asked, found, handler.name == REQUEST);
        let identity = Identity { handler: handler.id, key, fingerprint };
        // The tables do not know which handlers are natural.
        let is_old = |through: Option<SystemTime>| too_old(through?, asked.published, known.retention, false);
        let mut verdict = Verdict::of(classify(&identity, claimed, is_old), &rows);
        if let Verdict::Duplicate { discarded, .. } = &mut verdict {
            *discarded = known.was_discarded();
        }

        let hints = hints(asked, &handler, &identity.key, &known, &rows, &verdict, compared);
        let forgotten = known.processed_at.zip(known.retention).filter(|_| rows.is_empty());
        let claim = found.map(|fingerprint| ClaimShown {
            processed_at: known.processed_at,
            kept_until: forgotten.and_then(|(at, retention)| at.0.checked_add(retention)).map(Time),
            fingerprint: hex::encode(fingerprint.as_bytes()),
        });
        Ok(Why {
            handler: handler.name,
            consumer: handler.consumer,
            key: identity.key.to_string(),
            verdict,
            compared,
            claim,
            rows,
            operations: known.operations.unwrap_or_default(),
            hints,
        })
    }

    async fn known(&self, handler: &KnownHandler, key: &Key) -> Result<Known, Error> {
        let values: [Value; 2] = [i64::from(handler.id.0).into(), key.as_bytes().to_vec().into()];
        let found = self.ask(&questions::why(), &values).await?;
        let gone = || Error::Config(format!("the handler {}/{} was removed meanwhile", handler.consumer, handler.name));
        found.into_iter().next().ok_or_else(gone)
    }

    /// The ids of the rows with this key.
    pub(super) async fn rows_of(&self, handler: &KnownHandler, key: &Key) -> Result<Vec<i64>, Error> {
        Ok(self.known(handler, key).await?.rows.unwrap_or_default())
    }
}

/// The fingerprint with which the claim is compared, and what came of it. A claim is equal to itself if the payload is not known, or
/// tells nothing: the fingerprint of an HTTP request is not that of its body alone.
fn compare(asked: &Asked, found: Option<Fingerprint>, is_request: bool) -> (Fingerprint, Compared) {
    let Some(stored) = found else { return (Fingerprint::none(), Compared::NoClaim) };
    let Some(payload) = asked.payload.clone() else { return (stored, Compared::NotGiven) };
    if is_request || stored.has_recipe() || stored == Fingerprint::none() {
        return (stored, Compared::OwnFingerprint);
    }
    let mut delivery = Delivery::new("", payload);
    let plain = Fingerprint::of_delivery(&delivery);
    delivery = delivery.with_content_type(Some("application/cloudevents+json".to_owned()));
    if let Some(Ok(event)) = cloud_event::read(&delivery) {
        delivery.rare_mut().cloud_event = Some(Ok(event));
    }
    if plain == stored || Fingerprint::of_delivery(&delivery) == stored {
        (stored, Compared::Equal)
    } else {
        (plain, Compared::Different)
    }
}

fn hints(
    asked: &Asked,
    handler: &KnownHandler,
    key: &Key,
    known: &Known,
    rows: &[Row],
    verdict: &Verdict,
    compared: Compared,
) -> Vec<String> {
    let mut hints = Vec::new();
    let KnownHandler { consumer, name, .. } = handler;
    if !known.is_there()
        && let Some(sample) = known.sample.as_deref().and_then(key_of)
    {
        hints.push(format!(
            "{consumer}/{name} has no message with the key {key}; one of its keys is {sample}. Is {key} the id of the entity, and \
             not of the event?"
        ));
    }
    let through = known.pruned_through.map(|time| time.0);
    match (verdict, through) {
        (Verdict::WouldRun, Some(through)) if through <= SystemTime::UNIX_EPOCH => {
            hints
                .push("this handler may process messages without claims: that there is none proves nothing".to_owned());
        }
        (Verdict::WouldRun, Some(through)) if asked.published.is_none() => {
            let since = ago(through.elapsed().unwrap_or_default());
            hints.push(format!(
                "it would be too old if it was published before {} ({since} ago): say when it was published",
                Time(through)
            ));
        }
        (Verdict::TooOld { .. }, _) => hints.push("a `natural` handler runs it all the same".to_owned()),
        _ => {}
    }
    let conflict = rows.iter().find(|row| row.reason == Some(Reason::Conflict));
    if let (Some(row), Compared::NotGiven) = (conflict, compared) {
        hints.push(format!(
            "another message with this key is a conflict, the dead letter {}: if you ask about that one, compare its payload",
            row.id
        ));
    }
    if compared == Compared::OwnFingerprint {
        hints.push("the payload was not compared: the handler has a fingerprint of its own".to_owned());
    }
    hints
}

/// A sentence.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WouldRun => f.write_str("it would run"),
            Self::Duplicate { age, discarded } => {
                let done = if *discarded { "discarded" } else { "processed" };
                write!(f, "it would be a duplicate: it was {done} {} ago, and nothing would run", ago(*age))
            }
            Self::Conflict { why } => write!(f, "it would be a conflict, and a dead letter: {why}"),
            Self::Waiting { row, dead } => {
                let row = row.map(|id| format!(", in row {id}")).unwrap_or_default();
                let (what, until) =
                    if *dead { ("a dead letter", "until a person replays it") } else { ("scheduled", "again") };
                write!(f, "the message is {what}{row}, and nothing would run {until}")
            }
            Self::TooOld { why } => write!(f, "it would be a dead letter, too old: {why}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::HandlerId;

    fn row(id: i64, reason: Option<Reason>) -> Row {
        let identity = Identity { handler: HandlerId(1), key: Key::empty(), fingerprint: Fingerprint::none() };
        let mut row = Row::new(id, identity, String::new(), Delivery::new("orders", ""), SystemTime::UNIX_EPOCH);
        row.reason = reason;
        row
    }

    /// A conflict with the same key is another message's row.
    #[test]
    fn each_class_of_the_pipeline_has_its_verdict() {
        let (age, text) = (Duration::from_secs(7), || "the error".to_owned());
        let conflict = || row(1, Some(Reason::Conflict));
        let waiting = |row, dead| Verdict::Waiting { row, dead };
        let table = [
            (Classified::New, vec![], Verdict::WouldRun, 10),
            (Classified::Gone, vec![], Verdict::WouldRun, 10),
            (Classified::Duplicate(Some(age)), vec![conflict()], Verdict::Duplicate { age, discarded: false }, 11),
            (Classified::Conflict(text()), vec![row(2, None)], Verdict::Conflict { why: text() }, 12),
            (Classified::Duplicate(None), vec![conflict(), row(2, None)], waiting(Some(2), false), 13),
            (
                Classified::Duplicate(None),
                vec![conflict(), row(2, Some(Reason::Exhausted))],
                waiting(Some(2), true),
                13,
            ),
            (Classified::Duplicate(None), vec![conflict()], waiting(None, false), 13),
            (Classified::TooOld(text()), vec![], Verdict::TooOld { why: text() }, 14),
        ];
        for (classified, rows, verdict, exit) in table {
            let said = Verdict::of(classified, &rows);
            assert_eq!((said.exit_code(), said), (exit, verdict));
        }
    }
}
