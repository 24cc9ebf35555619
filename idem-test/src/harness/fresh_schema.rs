//! A schema on PostgreSQL that lasts as long as a trial.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use idem_core::{BoxError, Error, Postgres};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::runtime::Builder;
use uuid::Uuid;

use super::bench::Bench;
use super::cleanup::Cleanup;
use super::connect::{Connect, no_tables};
use super::trial::Trial;

/// How long the removal of a schema may take. A process that has crashed in a trial holds its locks until the server
/// notices.
const REMOVAL: Duration = Duration::from_secs(30);

impl Trial<()> {
    /// Creates a trial on the PostgreSQL database whose URL is in the environment variable `DATABASE_URL`, or on that of
    /// [`url`](Bench::url), with a new schema for idem's tables. The schema is removed when the trial is dropped, also by a
    /// test that panics. So a test can run again with the same ids, and many can run at once. The role of the URL may create
    /// schemas.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Handler};
    /// # use idem_test::Trial;
    /// # async fn test<order_paid: Handler<Params = (), Connection = sqlx::PgConnection, Message: serde::de::DeserializeOwned>>(
    /// #     event: serde_json::Value) -> Result<(), BoxError> {
    /// let bench = Trial::postgres().tables("CREATE TABLE payments (order_id bigint PRIMARY KEY)");
    /// let trial = bench.handler::<order_paid>().await?;
    /// trial.deliver_json(&event)?.times(2).await?;
    /// assert_eq!(trial.number("SELECT count(*) FROM payments").await?, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// The schema has idem's tables, and those that [`tables`](Bench::tables) creates. Other tables of your handler are
    /// where they always are, with the rows of earlier tests: delete them first, or compare counts, as
    /// [`has_one_effect`](Trial::has_one_effect) does. A handler that inserts a fixed id into a table with a unique index
    /// fails in the second test.
    ///
    /// A process that is killed or aborts leaves its schema behind, named `idem_trial_` and a UUID. While no test runs,
    /// this removes them all, in psql:
    ///
    /// ```sql
    /// SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace WHERE nspname ^@ 'idem_trial_' \gexec
    /// ```
    pub fn postgres() -> Bench<FreshSchema> {
        let name = format!("idem_trial_{}", Uuid::new_v4().simple());
        Trial::new(FreshSchema {
            url: std::env::var("DATABASE_URL").unwrap_or_default(),
            name,
            tables: String::new(),
            is_begun: AtomicBool::new(false),
            is_created: Arc::default(),
        })
    }
}

impl<St, C, L> Bench<FreshSchema, St, C, L> {
    /// Sets the URL of the database, instead of `DATABASE_URL`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.connect.url = url.into();
        self
    }

    /// Creates the tables of the handler in the schema of the trial by this SQL, with which they are removed. The handler
    /// finds them by their plain names: its search path is the schema of the trial, and then `public`. They exist once
    /// [`handler`](Bench::handler) has returned, which also returns the error if the SQL fails.
    pub fn tables(mut self, sql: impl Into<String>) -> Self {
        self.connect.tables = sql.into();
        self
    }
}

/// Connects to PostgreSQL, with a new schema for idem's tables. Created by [`Trial::postgres`].
pub struct FreshSchema {
    /// Empty if `DATABASE_URL` is not set.
    url: String,
    name: String,
    /// The SQL that creates the handler's tables, or nothing.
    tables: String,
    is_begun: AtomicBool,
    /// Whether a store has connected, and the schema is there.
    is_created: Arc<AtomicBool>,
}

impl Connect for FreshSchema {
    type Output = Pin<Box<dyn Future<Output = Result<Postgres, Error>> + Send>>;

    fn connect(&self) -> Self::Output {
        if self.url.is_empty() {
            let why = "DATABASE_URL is not set: set it to the URL of a PostgreSQL database, or give .url(..)";
            return Box::pin(std::future::ready(Err(Error::Config(why.to_owned()))));
        }
        let options = Postgres::options(self.url()).schema(&*self.name);
        // The trial connects before its processes do. They never create the schema: one that is being killed would
        // create it again behind its removal.
        if self.is_begun.swap(true, SeqCst) {
            return Box::pin(options.verify_only().connect());
        }
        let (url, tables, is_created) = (self.url(), self.tables.clone(), self.is_created.clone());
        Box::pin(async move {
            let store = options.connect().await?;
            is_created.store(true, SeqCst);
            if !tables.is_empty() {
                run(url, tables).await.map_err(no_tables)?;
            }
            Ok(store)
        })
    }

    fn cleanup(&self) -> Cleanup {
        let (url, name, is_created) = (self.url.clone(), self.name.clone(), self.is_created.clone());
        Cleanup::new(move || {
            if let Some(complaint) = remove(url, &name, is_created.load(SeqCst)) {
                eprintln!("{complaint}");
            }
        })
    }
}

impl FreshSchema {
    /// The search path is changed only for tables in the schema.
    fn url(&self) -> String {
        let Self { url, name, tables, .. } = self;
        if tables.is_empty() {
            return url.clone();
        }
        format!("{url}{}options=-c%20search_path%3D{name}%2Cpublic", if url.contains('?') { '&' } else { '?' })
    }
}

/// Removes the schema. Returns what to do by hand if that fails. A trial that could not connect has no schema, and its
/// error says why.
fn remove(url: String, name: &str, is_created: bool) -> Option<String> {
    let text = format!("DROP SCHEMA IF EXISTS {name} CASCADE");
    let error = apart(run(url, text.clone())).err()?;
    is_created.then(|| format!("a trial could not remove its schema ({error}); run {text}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_trial_without_a_url_says_how_to_give_one() {
        let trial = Trial::postgres().url("");
        let Err(Error::Config(why)) = trial.connect.connect().await else { panic!("it connected") };
        assert!(why.contains("DATABASE_URL") && why.contains(".url(..)"), "{why}");
    }

    #[test]
    fn only_a_schema_that_was_created_is_complained_about() {
        // Nothing listens there.
        let url = "postgres://idem@127.0.0.1:1/idem";
        assert_eq!(remove(url.to_owned(), "idem_trial_1", false), None);
        let complaint = remove(url.to_owned(), "idem_trial_1", true).unwrap_or_default();
        assert!(complaint.contains("run DROP SCHEMA IF EXISTS idem_trial_1 CASCADE"), "{complaint}");
    }
}
