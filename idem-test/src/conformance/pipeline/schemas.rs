//! A codec that needs schemas, and the registry that provides them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_core::{BoxError, Codec, DecodeError, Delivery, PrepareError};
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// The content type of JSON written backwards.
pub(super) const BACKWARDS: &str = "application/x-backwards";

/// JSON, or backwards JSON according to the content type, under the schema that the header `schema` names.
#[derive(Clone)]
pub(super) struct Schemas {
    known: Arc<Mutex<BTreeSet<String>>>,
    registry: Registry,
}

/// The registry of schemas. Clones are the same registry.
#[derive(Clone, Default)]
pub(super) struct Registry {
    answers: watch::Sender<BTreeMap<String, Answer>>,
    asked: watch::Sender<usize>,
}

/// How the registry answers a request for a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Known,
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

impl<M: DeserializeOwned> Codec<M> for Schemas {
    fn decode(&self, delivery: &Delivery) -> Result<M, DecodeError> {
        if let Some(schema) = delivery.headers().get_str("schema")
            && !self.known.lock().unwrap().contains(schema)
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
        let mut answers = self.registry.answers.subscribe();
        let answered = answers.wait_for(|answers| answers.get(schema) != Some(&Answer::Hang)).await;
        let answer = answered.map_err(PrepareError::unavailable)?.get(schema).copied();
        match answer {
            Some(Answer::Known) => drop(self.known.lock().unwrap().insert(schema.to_owned())),
            Some(Answer::Forgotten) => {}
            Some(Answer::Away) => return Err(PrepareError::unavailable(BoxError::from("the registry is away"))),
            Some(Answer::Panic) => panic!("the registry's client panics"),
            _ => return Err(PrepareError::undecodable(format!("there is no schema {schema}"))),
        }
        Ok(())
    }
}
