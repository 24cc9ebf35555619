//! A schema on PostgreSQL that lasts as long as a trial.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::{BoxError, Error, Postgres};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::runtime::Builder;
use uuid::Uuid;

use super::cleanup::Cleanup;
use super::connect::Connect;
use super::trial::{Bench, Trial};

/// How long the removal of a schema may take. A process that has crashed in a trial holds its locks until the server
/// notices.
const REMOVAL: Duration = Duration::from_secs(30);

impl Trial<()> {
    /// Creates a trial on this PostgreSQL database, with a new schema for idem's tables. The schema is removed when the
    /// trial is dropped, also by a test that panics. So a test can run again with the same ids, and many can run at
    /// once. The role of the URL may create schemas.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Handler, Outcome};
    /// # use idem_test::Trial;
    /// # async fn test<order_paid: Handler<Params = (), Connection = sqlx::PgConnection, Message: serde::de::DeserializeOwned>>(
    /// #     event: serde_json::Value, url: String) -> Result<(), BoxError> {
    /// let trial = Trial::postgres(url).handler::<order_paid>().await?;
    /// let outcomes = trial.deliver_json(&event)?.times(2).await?;
    /// assert_eq!(outcomes, [Outcome::Processed, Outcome::Duplicate]);
    /// # Ok(()) }
    /// ```
    ///
    /// The schema has idem's tables only. The tables of your handler are where they always are, with the rows of earlier
    /// tests: delete them first, or compare counts, as [`has_one_effect`](Trial::has_one_effect) does. A handler that
    /// inserts a fixed id into a table with a unique index fails in the second test.
    ///
    /// A process that is killed or aborts leaves its schema behind, named `idem_trial_` and a UUID. While no test runs,
    /// this removes them all, in psql:
    ///
    /// ```sql
    /// SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace WHERE nspname ^@ 'idem_trial_' \gexec
    /// ```
    pub fn postgres(url: impl Into<String>) -> Bench<FreshSchema> {
        let name = format!("idem_trial_{}", Uuid::new_v4().simple());
        Trial::new(FreshSchema { url: url.into(), name, is_created: AtomicBool::new(false) })
    }
}

/// Connects to PostgreSQL, with a new schema for idem's tables. Created by [`Trial::postgres`].
pub struct FreshSchema {
    url: String,
    name: String,
    is_created: AtomicBool,
}

impl Connect for FreshSchema {
    type Output = Pin<Box<dyn Future<Output = Result<Postgres, Error>> + Send>>;

    fn connect(&self) -> Self::Output {
        let options = Postgres::options(&self.url).schema(&*self.name);
        // The trial connects before its processes do. They never create the schema: one that is being killed would
        // create it again behind its removal.
        let options = if self.is_created.swap(true, SeqCst) { options.verify_only() } else { options };
        Box::pin(options.connect())
    }

    fn cleanup(&self) -> Cleanup {
        let (url, name) = (self.url.clone(), self.name.clone());
        Cleanup::new(move || {
            let text = format!("DROP SCHEMA IF EXISTS {name} CASCADE");
            if let Err(error) = apart(run(url, text.clone())) {
                eprintln!("a trial could not remove its schema ({error}); run {text}");
            }
        })
    }
}

/// Runs a future to its end. The thread may belong to a runtime, in which nothing may block on another one, so that
/// takes a thread of its own.
fn apart(work: impl Future<Output = Result<(), BoxError>> + Send + 'static) -> Result<(), BoxError> {
    let thread = std::thread::Builder::new().spawn(|| {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async { tokio::time::timeout(REMOVAL, work).await? })
    })?;
    thread.join().unwrap_or_else(|_| Err("a panic".into()))
}

async fn run(url: String, text: String) -> Result<(), BoxError> {
    let mut conn = PgConnection::connect(&url).await?;
    sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut conn).await?;
    conn.close().await?;
    Ok(())
}

/// Shows the schema, and not the URL, since it may contain a password.
impl fmt::Debug for FreshSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreshSchema").field("name", &self.name).finish_non_exhaustive()
    }
}
