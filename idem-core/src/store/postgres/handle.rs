//! The store itself, which all files of this folder share.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres as Pg};

use crate::store::sql::Clock;
use crate::store::sql::Names;
use crate::store::{Answer, HandlerId, OutboxId, StoreFacts};

use super::answer::About;
use super::limits::Use;
use super::pool::Pool;

/// The PostgreSQL store. Clones share their connections.
///
/// The store has its own connections, separate from any pool of the application: a handler that needs a second
/// connection takes it from the application's pool, and cannot starve the store.
///
/// ```no_run
/// # use idem_core::{Postgres, Source, Worker};
/// # async fn open(orders: impl Source, payments: impl Source) -> Result<(), Box<dyn std::error::Error>> {
/// let store = Postgres::connect(&std::env::var("DATABASE_URL")?).await?;
/// // One pool for both.
/// let orders = Worker::new("billing-orders", store.clone(), orders);
/// let payments = Worker::new("billing-payments", store, payments);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Postgres(pub(super) Arc<Inner>);

/// A statement of idem's own, with its values.
pub(super) type Statement<'q> = Query<'q, Pg, PgArguments>;

pub(super) struct Inner {
    pub(super) pool: Arc<Pool>,
    pub(super) facts: StoreFacts,
    pub(super) schema: String,
    /// The name of the schema as an identifier.
    pub(super) quoted: String,
    pub(super) retention: Duration,
    /// Rows that an application has used in transactions of its own.
    pub(super) handlers: Names<(String, String), HandlerId>,
    pub(super) outboxes: Names<String, OutboxId>,
    pub(super) clock: Clock,
}

impl Postgres {
    /// Returns a statement with the name of the schema inserted, to bind values to.
    pub(super) fn query<'q>(&self, template: &str) -> Statement<'q> {
        // Safe: the text consists of constants and the quoted name of the schema.
        sqlx::query(AssertSqlSafe(self.text_with(template, &[])))
    }

    /// Returns one of [`statements`](crate::store::sql::statements).
    pub(super) fn shared<'q>(&self, text: &str) -> Statement<'q> {
        self.query(&shared_text(text))
    }

    /// Returns the text of a statement, with at most nine values as literals, none of which may contain a dollar sign or a brace.
    pub(super) fn text_with(&self, template: &str, values: &[String]) -> String {
        let values = values.iter().enumerate();
        let text = values.fold(template.to_owned(), |text, (at, value)| text.replace(&format!("${}", at + 1), value));
        text.replace("{schema}", &self.0.quoted)
    }

    /// Runs one statement in autocommit.
    pub(super) async fn ask(&self, query: Statement<'_>) -> Answer<Vec<PgRow>> {
        self.ask_about(About::Nothing, query).await
    }

    /// Runs one statement in autocommit that may take long.
    pub(super) async fn ask_long(&self, query: Statement<'_>) -> Answer<Vec<PgRow>> {
        let _long = self.0.pool.long().await?;
        self.ask(query).await
    }

    pub(super) async fn ask_about(&self, about: About, query: Statement<'_>) -> Answer<Vec<PgRow>> {
        self.ask_since(about, query).await.map(|(rows, _)| rows)
    }

    /// Answers a question of an operator, which changes nothing, within this time.
    pub(super) async fn ask_patiently(&self, patience: Duration, question: Statement<'_>) -> Answer<Vec<PgRow>> {
        let _long = self.0.pool.long().await?;
        let mut connection = self.0.pool.connection(Use::Own).await?;
        let answer = connection.read_only(patience, question).await;
        connection.put_back();
        answer.map_err(|failure| failure.fault(About::Operator))
    }

    /// Also returns when it had its connection. The transaction of the statement, whose beginning is `now()`, begins later.
    pub(super) async fn ask_since(&self, about: About, query: Statement<'_>) -> Answer<(Vec<PgRow>, Instant)> {
        let mut connection = self.0.pool.connection(Use::Own).await?;
        let since = Instant::now();
        let answer = connection.autocommit(query).await;
        connection.put_back();
        answer.map(|rows| (rows, since)).map_err(|failure| failure.fault(about))
    }
}

/// Returns the text of one of [`statements`](crate::store::sql::statements) for this database.
pub(super) fn shared_text(text: &str) -> String {
    let text = text.replace("\"idem_", "{schema}.\"").replace("{greatest}", "greatest");
    let text = text.replace("{source}", "{schema}.member(i.envelope, 'source')");
    text.replace("{now}", "now()").replace("{clock}", "clock_timestamp()")
}

/// Shows the location of the database, without the password.
impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("facts", &self.0.facts).finish_non_exhaustive()
    }
}
