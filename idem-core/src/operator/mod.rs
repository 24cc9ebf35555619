//! What operators read and change: dead letters, scheduled messages, outboxes, calls and workers.
//!
//! The command `idem` and its page are thin layers over [`Operator`], so a service can offer the same in its own admin program.
//! Answers are structs that can be serialized: times as RFC 3339, durations as milliseconds.
//!
//! | file | contents |
//! |---|---|
//! | this one | the operator; consumers and handlers by their names |
//! | `filter` | which rows are meant, as conditions of a question |
//! | `dead` | rows: list, show, replay, resolve, discard |
//! | `bulk` | changes of many rows, in chunks |
//! | `groups` | the causes of dead letters |
//! | `why` | what a delivery of a message would be now, by the pipeline's own rules |
//! | `status` | what goes on, and what needs a person |
//! | `workers` | workers and relays |
//! | `others` | messages of outboxes, calls, claims, operations, roles |
//! | `doctor` | what is wrong with the setup |
//! | `shown` | texts, payloads and times as people may see them |
//! | `questions` | the texts of all questions, for each database |
//!
//! # Questions
//!
//! A store that has neither SQL text of a [`Question`] answers it by its [name](Question::name), one JSON object for each row.
//! Times and durations are integers of milliseconds, keys, fingerprints and UUIDs are hexadecimal, and flags are 0 or 1. What an
//! object has is what the struct has whose name is in the table.
//!
//! | name | values | each row |
//! |---|---|---|
//! | `counts` | a consumer or null; a limit | [`ConsumerStatus`], with the counts as numbers up to the limit |
//! | `outboxes` | a limit | [`OutboxStatus`] in the same way, with `number` and `namespace` |
//! | `workers` | | [`WorkerRow`], with the `report` as it was written |
//! | `ids` | before this id; the size of the window; handlers as a JSON array; those of the filter | `ids`, `looked`, `unsearched`, `next`, `at` |
//! | `groups` | handlers as a JSON array; how many of each; those of the filter | `consumer`, `handler`, `looked`, and `groups` of `reason`, `line`, `count`, `first`, `last`, `example` |
//! | `why` | a handler; a key | `claimed`, `fingerprint`, `processed_at`, `age`, `retention`, `pruned_through`, `sample`, `rows`, `operations` |
//! | `operations` | before this id; a limit; a consumer or null and a command or null, or a handler and a key | [`Operation`] |
//! | `outgoing` | an outbox; before this id; a limit | [`Outgone`] |
//! | `calls` | handlers as a JSON array; before this id; a limit | a number: the id of a row |
//! | `forget` | a handler; a key; the command; the person | a number: when the message was processed |
//! | `clock` | | a number: the time |
//! | `vacuum` | | nothing, unless the database is PostgreSQL |

mod bulk;
mod dead;
mod doctor;
mod filter;
mod groups;
mod others;
mod questions;
mod shown;
mod status;
mod why;
mod workers;

use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::store::{Question, StoreError, Value};
use crate::{Error, Store};

pub use crate::key::text::keys;
pub use crate::store::{By, KnownHandler, Page, Replayed, Resolution};
pub use bulk::{Bulk, Done};
pub use dead::{Found, May, Shown};
pub use doctor::Finding;
pub use filter::Filter;
pub use groups::{Group, Groups};
pub use others::{Forgotten, Operation, Outgone, roles};
pub use shown::{Pretty, Time, ago, command_line, harmless, is_harmless, is_secret, shell};
pub use status::{ConsumerStatus, Count, Counted, OutboxStatus, Rates, Status};
pub use why::{Asked, ClaimShown, Compared, Verdict, Why};
pub use workers::WorkerRow;

/// What operators read and change, of one consumer or of all in a database. It needs no worker.
///
/// ```no_run
/// # use std::ops::ControlFlow;
/// # use idem_core::{BoxError, Reason, Store, operator::{Bulk, Filter, Operator, Page}};
/// # async fn admin<S: Store>(store: S) -> Result<(), BoxError> {
/// let operator = Operator::of(&store, "billing").await?.by("anna");
/// for row in operator.list(&Filter::new(), Page::default()).await?.rows {
///     println!("{} {} {} {:?}: {}", row.id, row.handler, row.identity.key, row.reason, row.error);
/// }
/// let exhausted = Filter::new().reason(Reason::Exhausted);
/// let done = operator.replay_all(&exhausted, Bulk::default(), |_| ControlFlow::Continue(())).await?;
/// println!("{} replayed", done.due);
/// # Ok(()) }
/// ```
///
/// Each change of a message is recorded in the table `operations`, in the statement that makes it: who, when, and how the message
/// was before. Every method is one or more committed statements. If its future is dropped, the work may or may not have been
/// done; each method can be repeated.
///
/// # Errors
/// All methods: [`Error::Database`] if the database cannot be used, and [`Error::Denied`] if the role, or the file, permits no
/// such statement.
#[derive(Debug, Clone)]
pub struct Operator<S> {
    store: S,
    consumer: Option<String>,
    by: By,
}

impl<S: Store> Operator<S> {
    /// All consumers of the database. What it changes is recorded as done by [the user of this process](By::user).
    pub fn new(store: &S) -> Self {
        Self { store: store.clone(), consumer: None, by: By::user() }
    }

    /// The same for one consumer that a worker has had in this database, so that a misspelled name is not an empty inbox.
    ///
    /// # Errors
    /// [`Error::Config`] if no worker has ever had this name; the text lists the nearest names that there are.
    pub async fn of(store: &S, consumer: &str) -> Result<Self, Error> {
        let operator = Self::new(store);
        let known = operator.handlers().await?;
        if known.iter().any(|handler| handler.consumer == consumer) {
            return Ok(operator.consumer(consumer));
        }
        let names = known.into_iter().map(|handler| handler.consumer).collect();
        let remedy = nearest(consumer, names);
        Err(Error::Config(format!("no worker has ever had the consumer name {consumer:?} in this database. {remedy}")))
    }

    /// Only this consumer, without a check that there is one: it may be that no worker has started yet.
    pub fn consumer(self, name: impl Into<String>) -> Self {
        Self { consumer: Some(name.into()), ..self }
    }

    /// The person who is recorded in the table `operations`. A new command id is drawn: what is changed with this value is one
    /// command.
    pub fn by(self, actor: impl Into<String>) -> Self {
        Self { by: By::new(actor), ..self }
    }

    /// The id that is recorded with each change that this value makes.
    pub fn command(&self) -> Uuid {
        self.by.command
    }

    /// The handlers that workers have registered, by consumer and name.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn handlers(&self) -> Result<Vec<KnownHandler>, Error> {
        let known = self.store.handlers(self.consumer.as_deref()).await;
        known.map_err(|fault| failed("list the handlers", fault))
    }

    /// The handler with this name, which may be a former one, or `consumer/name`.
    ///
    /// # Errors
    /// [`Error::Config`] if there is none, with the nearest names, or if several consumers have one, with all of them.
    pub async fn handler(&self, name: &str) -> Result<KnownHandler, Error> {
        let known = self.handlers().await?;
        match &named(&known, name)[..] {
            [handler] => Ok((*handler).clone()),
            [] => {
                let former = known.iter().flat_map(|handler| handler.formerly.clone());
                let names = known.iter().flat_map(|handler| [full_name(handler), handler.name.clone()]);
                let all = names.chain(former).collect();
                Err(Error::Config(format!("no handler {name:?} in this database. {}", nearest(name, all))))
            }
            several => {
                let all: Vec<String> = several.iter().map(|handler| full_name(handler)).collect();
                Err(Error::Config(format!("several handlers have the name {name:?}: say {}", all.join(" or "))))
            }
        }
    }

    /// How many handlers a filter means, and their numbers as a JSON array.
    async fn matching(&self, name: Option<&str>) -> Result<(usize, String), Error> {
        let mut known = self.handlers().await?;
        if let Some(name) = name {
            known = named(&known, name).into_iter().cloned().collect();
        }
        let numbers: Vec<i32> = known.iter().map(|handler| handler.id.0).collect();
        Ok((numbers.len(), serde_json::json!(numbers).to_string()))
    }

    async fn ask<T: DeserializeOwned>(&self, question: &Question, values: &[Value]) -> Result<Vec<T>, Error> {
        let what = format!("answer the operator's question {:?}", question.name);
        let answers = self.store.ask(question, values).await.map_err(|fault| failed(&what, fault))?;
        let read = |answer: &String| serde_json::from_str(answer).map_err(|error| Error::database(&*what, error));
        answers.iter().map(read).collect()
    }
}

/// The handlers with this name. A former name comes behind the same name of another handler.
fn named<'a>(known: &'a [KnownHandler], name: &str) -> Vec<&'a KnownHandler> {
    let is_it = |handler: &&KnownHandler| handler.name == name || full_name(handler) == name;
    let was_it = |handler: &&KnownHandler| {
        handler.formerly.iter().any(|former| former == name || format!("{}/{former}", handler.consumer) == name)
    };
    let found: Vec<_> = known.iter().filter(is_it).collect();
    if found.is_empty() { known.iter().filter(was_it).collect() } else { found }
}

fn full_name(handler: &KnownHandler) -> String {
    format!("{}/{}", handler.consumer, handler.name)
}

/// How alike a name has to be to another one to be named instead: the similarity by Jaro and Winkler, from 0 to 1.
const ALIKE: f64 = 0.75;

/// How many names are listed if none is alike.
const LISTED: usize = 10;

/// Says which of these names a person may have meant. Rows that no handler takes have no name.
fn nearest(name: &str, mut known: Vec<String>) -> String {
    known.retain(|known| !known.is_empty() && !known.ends_with('/'));
    known.sort();
    known.dedup();
    let mut alike: Vec<(f64, &str)> =
        known.iter().map(|known| (strsim::jaro_winkler(name, known), known.as_str())).collect();
    alike.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let nearest: Vec<&str> = alike.iter().filter(|(like, _)| *like >= ALIKE).take(3).map(|(_, name)| *name).collect();
    match (&nearest[..], &known[..]) {
        (_, []) => "There is none: no worker has started here".to_owned(),
        ([], known) => {
            let more = if known.len() > LISTED { ", .." } else { "" };
            format!("There are: {}{more}", known[..known.len().min(LISTED)].join(", "))
        }
        (nearest, _) => format!("Nearest: {}", nearest.join(", ")),
    }
}

fn failed(what: &str, fault: StoreError) -> Error {
    let what = format!("could not {what}");
    match fault {
        StoreError::Denied(source) => Error::Denied { what, source },
        fault => Error::Database { what, source: fault.into() },
    }
}
