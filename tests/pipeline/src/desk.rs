//! The state that handlers and test share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use idem_core::{BoxError, Outbox};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_test::provider::Provider;

/// The state that handlers and test share.
#[derive(Clone)]
pub(super) struct Desk {
    runs: Arc<Mutex<BTreeMap<String, usize>>>,
    log: Arc<Mutex<Vec<String>>>,
    pub(super) effects: String,
    handling: Arc<Mutex<Handling>>,
    /// How many runs are waiting.
    pub(super) waiting: watch::Sender<usize>,
    pub(super) go: watch::Sender<bool>,
    /// The outboxes of the runs of handlers that stage.
    pub(super) outboxes: Arc<Mutex<Vec<Outbox>>>,
    /// The payment provider of the handlers that call one.
    pub(super) provider: Provider,
}

impl Desk {
    pub(super) fn new(effects: String) -> Self {
        Self {
            runs: Arc::default(),
            log: Arc::default(),
            effects,
            handling: Arc::default(),
            waiting: watch::Sender::new(0),
            go: watch::Sender::new(false),
            outboxes: Arc::default(),
            provider: Provider::new(),
        }
    }

    /// How often the handler was called for this message.
    pub(super) fn runs(&self, id: &str) -> usize {
        self.runs.lock().unwrap().get(id).copied().unwrap_or_default()
    }

    /// The messages for which the handler was called, in order.
    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Counts a call of a handler, until the returned value is dropped.
    pub(super) fn handling(&self) -> impl Send + 'static + use<> {
        let mut handling = self.handling.lock().unwrap();
        handling.now += 1;
        handling.most = handling.most.max(handling.now);
        Call(self.handling.clone())
    }

    /// The highest number of calls at the same time.
    pub(super) fn most_at_once(&self) -> usize {
        self.handling.lock().unwrap().most
    }

    /// Writes an effect for each of these names. Natural handlers write it only where it is not there yet.
    pub(super) async fn write<W: World>(&self, names: &[&str], tx: &mut W::Connection) -> Result<(), BoxError> {
        if W::NATURAL {
            let inserts: Vec<_> = names.iter().map(|name| self.insert_if_new(name)).collect();
            return W::execute(tx, &inserts.join("; ")).await;
        }
        let rows = names.iter().map(|name| format!("('{name}')")).collect::<Vec<_>>().join(", ");
        W::execute(tx, &format!("INSERT INTO {} (name) VALUES {rows}", self.effects)).await
    }

    /// The statement that writes an effect if it is not there yet.
    pub(super) fn insert_if_new(&self, name: &str) -> String {
        let effects = &self.effects;
        format!(
            "INSERT INTO {effects} (name) SELECT '{name}'
             WHERE NOT EXISTS (SELECT 1 FROM {effects} WHERE name = '{name}')"
        )
    }

    /// Waits until the test releases it.
    pub(super) async fn wait(&self) -> Result<(), BoxError> {
        self.waiting.send_modify(|waiting| *waiting += 1);
        self.go.subscribe().wait_for(|go| *go).await?;
        Ok(())
    }

    pub(super) fn run(&self, id: &str) -> usize {
        self.log.lock().unwrap().push(id.to_owned());
        let mut runs = self.runs.lock().unwrap();
        let run = runs.entry(id.to_owned()).or_default();
        *run += 1;
        *run
    }
}

/// How many handlers are called at the same time.
#[derive(Default)]
struct Handling {
    now: usize,
    most: usize,
}

/// A call of a handler.
struct Call(Arc<Mutex<Handling>>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.lock().unwrap().now -= 1;
    }
}
