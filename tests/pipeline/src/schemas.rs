//! A codec that needs schemas, the registry that provides them, and messages and rows that need a schema.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idem_core::store::{Consumers, HandlerId};
use idem_core::{BoxError, Codec, DecodeError, Delivery, Headers, PrepareError, RetryPolicy};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_test::Publication;

use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// The content type of JSON written backwards.
pub(super) const BACKWARDS: &str = "application/x-backwards";

/// JSON, or backwards JSON according to the content type, under the schema that the header `schema` names.
#[derive(Clone)]
pub(super) struct Schemas {
    /// Until when each schema is known.
    known: Arc<Mutex<BTreeMap<String, Option<Instant>>>>,
    registry: Registry,
}

/// The registry of schemas. Clones are the same registry.
#[derive(Clone, Default)]
pub(super) struct Registry {
    answers: watch::Sender<BTreeMap<String, Answer>>,
    asked: watch::Sender<usize>,
}

/// How long a codec knows the first answer that it forgets soon: less than the shortest delay before another try of a row.
const BRIEF: Duration = Duration::from_millis(50);

/// How the registry answers a request for a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Known,
    /// It answers, and the codec forgets the answer before a delayed row would need it: the shortest delay before
    /// each next try of a row doubles, and so does this time. On a busy machine, even a row that is due at once may come late.
    Brief,
    Unknown,
    Away,
    /// It does not answer until the test sets another answer.
    Hang,
    Panic,
    /// It answers, and the codec forgets the answer.
    Forgotten,
}

impl Registry {
    pub(super) fn answers(&self, schema: &str, answer: Answer) {
        self.answers.send_modify(|answers| {
            answers.insert(schema.to_owned(), answer);
        });
    }

    /// A codec without any schema yet.
    pub(super) fn codec(&self) -> Schemas {
        Schemas { known: Arc::default(), registry: self.clone() }
    }

    /// Waits until it was asked `times` times in total.
    pub(super) async fn asked(&self, times: usize) {
        // The delays between the tries grow, and this machine may be busy.
        let mut asked = self.asked.subscribe();
        let enough = asked.wait_for(|asked| *asked >= times);
        tokio::time::timeout(Duration::from_secs(60), enough).await.expect("the registry is not asked").unwrap();
    }

    pub(super) fn times_asked(&self) -> usize {
        *self.asked.borrow()
    }
}

impl Schemas {
    fn knows(&self, schema: &str) -> bool {
        let known = self.known.lock().unwrap();
        known.get(schema).is_some_and(|until| until.is_none_or(|until| Instant::now() < until))
    }

    fn learn(&self, schema: &str, until: Option<Instant>) {
        self.known.lock().unwrap().insert(schema.to_owned(), until);
    }
}

impl<M: DeserializeOwned> Codec<M> for Schemas {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        if let Some(schema) = delivery.headers().get_str("schema")
            && !self.knows(schema)
        {
            return Err(DecodeError::unprepared());
        }
        let mut data = delivery.data().to_vec();
        if delivery.content_type() == Some(BACKWARDS) {
            data.reverse();
        }
        Ok(serde_json::from_slice(&data)?)
    }

    async fn prepare(&self, delivery: &Delivery) -> Result<(), PrepareError> {
        let schema = delivery.headers().get_str("schema").ok_or_else(|| PrepareError::undecodable("no schema"))?;
        self.registry.asked.send_modify(|asked| *asked += 1);
        let brief = BRIEF * 2_u32.saturating_pow(self.registry.times_asked() as u32 - 1);
        let mut answers = self.registry.answers.subscribe();
        let answered = answers.wait_for(|answers| answers.get(schema) != Some(&Answer::Hang)).await;
        let answer = answered.map_err(PrepareError::unavailable)?.get(schema).copied();
        match answer {
            Some(Answer::Known) => self.learn(schema, None),
            Some(Answer::Brief) => self.learn(schema, Some(Instant::now() + brief)),
            Some(Answer::Forgotten) => {}
            Some(Answer::Away) => return Err(PrepareError::unavailable(BoxError::from("the registry is away"))),
            Some(Answer::Panic) => panic!("the registry's client panics"),
            _ => return Err(PrepareError::undecodable(format!("there is no schema {schema}"))),
        }
        Ok(())
    }
}

pub(super) fn of_schema(schema: &'static str, order: Order) -> Publication {
    Publication::from(order).header("schema", schema)
}

/// With a limit longer than any test.
pub(super) fn patient() -> Settings {
    Settings { prepare_timeout: Duration::from_secs(3600), ..Settings::default() }
}

/// Leaves rows in the inbox whose first attempt has failed and whose worker has ended.
pub(super) async fn rows<W: World>(line: &Line<W>, schema: &'static str, ids: &[&str]) {
    let (registry, before) = (Registry::default(), line.outcomes(0).await.len());
    registry.answers(schema, Answer::Known);
    let due = Duration::from_secs(1);
    let retry = RetryPolicy::new().min_delay(due).max_delay(due);
    let worker = line.start_with_codec(registry.codec(), Settings { retry, ..Settings::default() });
    for id in ids {
        line.publish(of_schema(schema, Order::new(id, &[Act::Fail, Act::Ok]).by_attempt()));
    }
    let outcomes = line.outcomes(before + ids.len()).await;
    assert!(outcomes[before..].iter().all(|outcome| outcome == "scheduled 1"), "{outcomes:?}");
    worker.stop_once_idle(&line.queue).await;
}

/// The handlers of the suite, as their ids.
pub(super) async fn handlers<W: World>(line: &Line<W>) -> (HandlerId, HandlerId) {
    let handlers = line.store.register("billing", &["orders", "refunds"]).await.unwrap();
    (handlers[0], handlers[1])
}

pub(super) fn of_schema_v1(id: &str) -> Delivery {
    Delivery::new("orders", serde_json::to_vec(&Order::ok(id)).unwrap()).with_headers(schema_header("v1"))
}

pub(super) fn schema_header(schema: &'static str) -> Headers {
    [("schema", schema)].into_iter().collect()
}
