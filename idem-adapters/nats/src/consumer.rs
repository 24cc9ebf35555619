//! The durable consumer: found as it must be, brought there, or made.

use std::time::{Duration, SystemTime};

use async_nats::Client;
use async_nats::jetstream::consumer::{self, DeliverPolicy};
use async_nats::jetstream::context::RequestError;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::{Context, ErrorCode};
use idem_core::{Error, Ordering, Terms};
use serde_json::{Value, json};

use crate::address::Address;
use crate::difference::{Difference, differences};
use crate::error::broker;

/// Where a consumer begins that is made anew. It says nothing about one that exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the oldest message that the stream has: the default.
    #[default]
    All,
    /// With what is published from then on.
    New,
    /// With the message of this number.
    Sequence(u64),
    /// With the first message that was published at this time or later.
    Time(SystemTime),
}

/// What is wanted of the consumer, as far as a user can say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wishes {
    pub(crate) filters: Vec<String>,
    pub(crate) ack_wait: Option<Duration>,
    pub(crate) start: Start,
    pub(crate) reconcile: bool,
}

/// A consumer as it is on the server.
pub(crate) struct Found {
    pub(crate) info: consumer::Info,
    /// All that the server says, also what async-nats does not know.
    pub(crate) raw: Value,
}

/// The server's default, <https://docs.nats.io/nats-concepts/jetstream/consumers#ackwait>.
pub(crate) const ACK_WAIT: Duration = Duration::from_secs(30);

/// What may be unsettled in all workers together: no limit, since each worker has its own. With the server's default of
/// 1000 the second worker with `.batch(100)`, each of which wants 3200, would get nothing.
pub(crate) const MAX_ACK_PENDING: i64 = -1;

/// One consumer of one stream, to be looked for.
pub(crate) struct Place<'a> {
    pub(crate) client: &'a Client,
    /// What the subjects of JetStream's own requests begin with.
    pub(crate) api: &'a str,
    pub(crate) jetstream: &'a Context,
    pub(crate) address: &'a Address,
    pub(crate) stream: &'a str,
    pub(crate) name: &'a str,
}

impl Place<'_> {
    /// The consumer, with settings that keep what is promised. `since` is when it was made, where it was there before:
    /// one that starts with what is new would leave out what came since.
    pub(crate) async fn ensure(
        &self,
        wishes: &Wishes,
        terms: &Terms,
        since: Option<SystemTime>,
    ) -> Result<consumer::Info, Error> {
        if wishes.filters.len() > 1 && !self.client.is_server_compatible(2, 10, 0) {
            return Err(Error::Refused(format!(
                "{self} is to have {} filters, and the server is older than 2.10, which would ignore them all in silence: \
                 give one .filter_subject, or upgrade the server",
                wishes.filters.len()
            )));
        }
        let found = match self.find().await? {
            Some(found) => found,
            None => self.make(&config(self.name, wishes, terms, since)).await?,
        };
        let found = match differences(&found, wishes, terms) {
            different if !different.is_empty() && wishes.reconcile && different.iter().all(Difference::can_be_set) => {
                self.update(found.raw, &different).await?
            }
            _ => found,
        };
        let left = differences(&found, wishes, terms);
        if left.is_empty() { Ok(found.info) } else { Err(self.refuse(wishes, &left)) }
    }

    async fn find(&self) -> Result<Option<Found>, Error> {
        let asked = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        match self.jetstream.request(asked, &json!({})).await.map_err(|error| self.silent("look at", error))? {
            Response::Ok(raw) => self.read(raw).map(Some),
            Response::Err { error } if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND => Ok(None),
            Response::Err { error } => Err(broker(format!("cannot look at {self}"), error)),
        }
    }

    async fn make(&self, config: &Value) -> Result<Found, Error> {
        self.put("make", config, "create").await
    }

    async fn update(&self, mut raw: Value, different: &[Difference]) -> Result<Found, Error> {
        // What the server says of the others goes back unchanged, also what this version does not know.
        let mut config = raw["config"].take();
        for Difference { setting, is, must, set } in different {
            tracing::info!(consumer = self.name, setting, %is, %must, "a setting of the consumer is updated");
            for (name, value) in set {
                config[name] = value.clone();
            }
        }
        self.put("update", &config, "update").await
    }

    async fn put(&self, what: &str, config: &Value, action: &str) -> Result<Found, Error> {
        // The filter stands in the subject, so that permissions can be given for it; servers check that it does.
        let filter = config["filter_subject"].as_str().filter(|filter| !filter.is_empty());
        let filter = filter.map(|filter| format!(".{filter}")).unwrap_or_default();
        let asked = format!("CONSUMER.CREATE.{}.{}{filter}", self.stream, self.name);
        let request = json!({ "stream_name": self.stream, "config": config, "action": action });
        match self.jetstream.request(asked, &request).await.map_err(|error| self.silent(what, error))? {
            Response::Ok(raw) => self.read(raw),
            Response::Err { error } => Err(broker(format!("cannot {what} {self}: {error}"), error)),
        }
    }

    fn read(&self, raw: Value) -> Result<Found, Error> {
        match serde_json::from_value(raw.clone()) {
            Ok(info) => Ok(Found { info, raw }),
            Err(error) => Err(broker(format!("cannot read what the server says of {self}"), error)),
        }
    }

    fn silent(&self, what: &str, error: RequestError) -> Error {
        broker(
            format!(
                "no answer when trying to {what} {self}: check that the login may publish to \
                 {}.CONSUMER.*.{}.{} and below it, and subscribe to _INBOX.>",
                self.api, self.stream, self.name
            ),
            error,
        )
    }

    fn refuse(&self, wishes: &Wishes, left: &[Difference]) -> Error {
        let lines: String = left.iter().map(|difference| format!("\n  {difference}")).collect();
        let cure = if !left.iter().all(Difference::can_be_set) {
            "what cannot be changed needs another consumer: give its name by .durable(..), or delete this one, whose \
             place in the stream is then lost"
        } else if wishes.reconcile {
            "the server did not take the update: change it by hand (nats consumer edit)"
        } else {
            "use .reconcile() to have it changed at start, or change it by hand (nats consumer edit)"
        };
        Error::Refused(format!("{self} has settings that it must not have:{lines}\n{cure}"))
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "consumer `{}` of stream `{}` on {}", self.name, self.stream, self.address)
    }
}

/// A consumer that keeps what is promised.
fn config(name: &str, wishes: &Wishes, terms: &Terms, since: Option<SystemTime>) -> Value {
    let start = match (wishes.start, since) {
        (Start::New, Some(since)) => Start::Time(since),
        (start, _) => start,
    };
    let mut config = json!({
        "durable_name": name,
        "name": name,
        "ack_policy": "explicit",
        "ack_wait": nanos(wishes.ack_wait.unwrap_or(ACK_WAIT)),
        "max_deliver": -1,
        "max_ack_pending": match terms.ordering {
            Ordering::Queue => 1,
            _ => MAX_ACK_PENDING,
        },
        "replay_policy": "instant",
    });
    let policy = match start {
        Start::All => DeliverPolicy::All,
        Start::New => DeliverPolicy::New,
        Start::Sequence(start_sequence) => DeliverPolicy::ByStartSequence { start_sequence },
        Start::Time(time) => DeliverPolicy::ByStartTime { start_time: time.into() },
    };
    if let (Ok(Value::Object(policy)), Some(config)) = (serde_json::to_value(policy), config.as_object_mut()) {
        config.extend(policy);
    }
    for (name, value) in filters(&wishes.filters) {
        config[name] = value;
    }
    config
}

/// One filter goes where servers older than 2.10 look for it.
pub(crate) fn filters(filters: &[String]) -> [(&'static str, Value); 2] {
    match filters {
        [] => [("filter_subject", "".into()), ("filter_subjects", json!([]))],
        [one] => [("filter_subject", one.as_str().into()), ("filter_subjects", json!([]))],
        many => [("filter_subject", "".into()), ("filter_subjects", json!(many))],
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
