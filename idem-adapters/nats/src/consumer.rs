//! The durable consumer: checked, updated or created.

use std::time::{Duration, SystemTime};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer;
use async_nats::jetstream::context::RequestError;
use async_nats::jetstream::response::Response;
use idem_core::{Error, SubscribeOptions};
use serde_json::{Value, json};

use crate::address::Address;
use crate::connection::Connection;
use crate::settings::{Difference, Found, Start, Wishes, config, differences};

/// When the stream and the consumer were created. A recreated stream numbers its messages from 1 again, so an earlier
/// delivery's number would refer to another message. With a recreated consumer, it still refers to the same message.
#[derive(Clone, Copy)]
pub(crate) struct Made {
    pub(crate) stream: SystemTime,
    pub(crate) consumer: SystemTime,
}

/// The age of a stream from which on a worker that has run before reads it. By then all workers have compared it, which they
/// do every 5 seconds, with an answer within 5 seconds, and send no ack of an earlier stream.
const SETTLED: Duration = Duration::from_secs(12);

impl Made {
    /// Returns how long to wait until the stream is read. By the local clock, because servers older than 2.10 do not tell
    /// their time.
    pub(crate) fn rest(self) -> Duration {
        SETTLED.saturating_sub(self.stream.elapsed().unwrap_or_default())
    }

    /// Returns whether the consumer was created at `made`. A server of version 2.9 reports another time after its
    /// restart, by a fraction of a millisecond.
    pub(crate) fn consumer_is(self, made: SystemTime) -> bool {
        let apart = made.duration_since(self.consumer).unwrap_or_else(|error| error.duration());
        apart < Duration::from_secs(1)
    }
}

/// One consumer of one stream, and the connection to its server.
pub(crate) struct Place<'a> {
    pub(crate) connection: &'a Connection,
    pub(crate) address: &'a Address,
    pub(crate) stream: &'a str,
    pub(crate) name: &'a str,
}

impl Place<'_> {
    /// Returns the consumer. Creates it if it does not exist, and updates it if `reconcile` is set. Fails if its
    /// settings break idem's guarantees, or if it is gone and a new one would skip messages.
    ///
    /// `since` is when the consumer was created, if the source has seen it before: a recreated one with `Start::New`
    /// begins there, so that it does not skip messages published since.
    pub(crate) async fn ensure(
        &self,
        wishes: &Wishes,
        options: &SubscribeOptions,
        since: Option<SystemTime>,
    ) -> Result<consumer::Info, Error> {
        if wishes.filters.len() > 1 && !self.connection.client.is_server_compatible(2, 10, 0) {
            return Err(Error::Config(format!(
                "{self} needs {} filters, but a server older than 2.10 silently ignores them: \
                 give one .filter_subject, or upgrade the server",
                wishes.filters.len()
            )));
        }
        let found = match self.find().await? {
            Some(found) => found,
            None if wishes.start == Start::New && since.is_none() && options.has_history => return Err(self.gone()),
            None => {
                if options.has_history && since.is_none() {
                    tracing::warn!(
                        stream = self.stream,
                        consumer = self.name,
                        "the consumer does not exist, although this worker has handled messages before, so it is created: if it \
                         or its stream was deleted, check what is missing"
                    );
                }
                self.put("make", &config(self.name, wishes, options, since), "create").await?
            }
        };
        let found = match differences(&found, wishes, options) {
            different if !different.is_empty() && wishes.reconcile && different.iter().all(Difference::can_be_set) => {
                self.update(found.raw, &different).await?
            }
            _ => found,
        };
        let left = differences(&found, wishes, options);
        if left.is_empty() { Ok(found.info) } else { Err(self.refuse(wishes, &left)) }
    }

    async fn find(&self) -> Result<Option<Found>, Error> {
        let asked = format!("CONSUMER.INFO.{}.{}", self.stream, self.name);
        let answer = self.connection.jetstream().request(asked, &json!({})).await;
        match answer.map_err(|error| self.silent("read the settings of", error))? {
            Response::Ok(raw) => self.read(raw).map(Some),
            Response::Err { error } if error.error_code() == ErrorCode::CONSUMER_NOT_FOUND => Ok(None),
            Response::Err { error } => Err(Error::broker(format!("cannot read the settings of {self}"), error)),
        }
    }

    async fn update(&self, mut raw: Value, different: &[Difference]) -> Result<Found, Error> {
        // All other settings are sent back as received, including those that this version does not know.
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
        // The filter is part of the request's subject, so that permissions can refer to it; servers check that it is.
        let filter = config["filter_subject"].as_str().filter(|filter| !filter.is_empty());
        let filter = filter.map(|filter| format!(".{filter}")).unwrap_or_default();
        let asked = format!("CONSUMER.CREATE.{}.{}{filter}", self.stream, self.name);
        let request = json!({ "stream_name": self.stream, "config": config, "action": action });
        match self.connection.jetstream().request(asked, &request).await.map_err(|error| self.silent(what, error))? {
            Response::Ok(raw) => self.read(raw),
            Response::Err { error } => Err(Error::broker(format!("cannot {what} {self}: {error}"), error)),
        }
    }

    fn read(&self, raw: Value) -> Result<Found, Error> {
        match serde_json::from_value(raw.clone()) {
            Ok(info) => Ok(Found { info, raw }),
            Err(error) => Err(Error::broker(format!("cannot parse the server's description of {self}"), error)),
        }
    }

    fn silent(&self, what: &str, error: RequestError) -> Error {
        Error::broker(
            format!(
                "no answer when trying to {what} {self}: check that the login may publish to \
                 {}.CONSUMER.*.{}.{} and below it, and subscribe to _INBOX.>",
                self.connection.api, self.stream, self.name
            ),
            error,
        )
    }

    /// The error for a worker that has run before, and whose consumer is gone.
    fn gone(&self) -> Error {
        Error::Config(format!(
            "{self} does not exist, and this worker has handled messages before, so the consumer was deleted, or the stream \
             was restored without it. Start::New would silently skip what was published since: use Start::All, where \
             duplicates are recognized by their claims and natural handlers run again, or Start::Time with a time before the worker last ran. If \
             messages are to be skipped, create the consumer by hand (nats consumer add)"
        ))
    }

    fn refuse(&self, wishes: &Wishes, left: &[Difference]) -> Error {
        let lines: String = left.iter().map(|difference| format!("\n  {difference}")).collect();
        let remedy = if !left.iter().all(Difference::can_be_set) {
            "some of these settings cannot be changed: use another consumer, .durable(..), or delete this one, which \
             loses its position in the stream"
        } else if wishes.reconcile {
            "the server did not take the update: change it by hand (nats consumer edit)"
        } else {
            "use .reconcile() to have it changed at start, or change it by hand (nats consumer edit)"
        };
        Error::Config(format!("{self} has settings with which idem cannot consume it:{lines}\n{remedy}"))
    }
}

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "consumer `{}` of stream `{}` on {}", self.name, self.stream, self.address)
    }
}
