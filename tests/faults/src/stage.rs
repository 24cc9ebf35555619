//! The state that the handler and its test share.

use std::sync::{Arc, Mutex};

use sqlx::{AssertSqlSafe, PgConnection};
use tokio::sync::watch;

use crate::within;

/// One run of the handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The message's id.
    pub id: String,
    /// The attempt number of the delivery.
    pub attempt: u32,
}

/// The state of the test's workers. Clones are the same stage.
#[derive(Clone)]
pub struct Stage(Arc<Inner>);

struct Inner {
    url: String,
    schema: String,
    runs: Mutex<Vec<Run>>,
    changed: watch::Sender<()>,
    open: watch::Sender<bool>,
}

impl Stage {
    /// The stage of this schema, which has the tables `effects` and `business`.
    pub fn new(url: &str, schema: &str) -> Self {
        let open = watch::Sender::new(false);
        let inner = Inner {
            url: url.into(),
            schema: schema.into(),
            runs: Mutex::default(),
            changed: watch::Sender::default(),
            open,
        };
        Self(Arc::new(inner))
    }

    /// The URL for the application's connections.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// A statement on the schema's tables.
    pub fn sql(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{schema}", &self.0.schema))
    }

    /// Writes the effect of a message. The table has no unique constraint, and so shows every effect.
    pub async fn effect(&self, id: &str, attempt: u32, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
        let insert = sqlx::query(self.sql("INSERT INTO {schema}.effects (id, attempt) VALUES ($1, $2)"));
        insert.bind(id).bind(attempt as i32).execute(tx).await?;
        Ok(())
    }

    /// Records a call of the handler.
    pub fn enter(&self, id: &str, attempt: u32) {
        self.0.runs.lock().unwrap().push(Run { id: id.to_owned(), attempt });
        self.0.changed.send_replace(());
    }

    /// All runs so far.
    pub fn runs(&self) -> Vec<Run> {
        self.0.runs.lock().unwrap().clone()
    }

    /// The attempts of this message so far, as the handler saw them.
    pub fn attempts(&self, id: &str) -> Vec<u32> {
        self.runs().into_iter().filter(|run| run.id == id).map(|run| run.attempt).collect()
    }

    /// Waits until the handler has been called `runs` times.
    pub async fn entered(&self, runs: usize) {
        let mut changed = self.0.changed.subscribe();
        within(&format!("the handler is called {runs} times"), async {
            while self.0.runs.lock().unwrap().len() < runs {
                changed.changed().await.unwrap();
            }
        })
        .await;
    }

    /// Releases the handlers that wait for it now or later.
    pub fn open(&self) {
        self.0.open.send_replace(true);
    }

    /// Whether [`subscribe`](Self::open) was called.
    pub fn is_open(&self) -> bool {
        *self.0.open.borrow()
    }

    /// Waits for [`subscribe`](Self::open).
    pub async fn opened(&self) {
        self.0.open.subscribe().wait_for(|open| *open).await.unwrap();
    }
}
