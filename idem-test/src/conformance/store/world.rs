//! What the suite needs to know about a database.

use std::time::Duration;

use idem_core::{BoxError, Error, Lends, Store};

/// A schema, or a file, of one database, made for one test and still empty.
pub trait World: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: Store + Lends<Self::Connection>;
    /// The connection that it lends to handlers.
    type Connection: Send + 'static;

    /// What the database can do.
    const FEATURES: Features;

    /// Whether workers of the pipeline's suite store their messages before they run them.
    #[doc(hidden)]
    const INBOX: bool = false;

    /// How many messages workers of the pipeline's suite run together.
    #[doc(hidden)]
    const BATCH: usize = 1;

    /// A new world. `None` where the database cannot be reached and need not be; that is printed.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// A store in this world that shares no connection with others, as a process of its own.
    fn store(&self, setup: Setup) -> impl Future<Output = Result<Self::Store, Error>> + Send;

    /// The full name of a table of idem's own: `handlers`, `processed_messages`, `inbox_messages`.
    fn own(&self, table: &str) -> String;

    /// The full name of a table of the suite's.
    fn name(&self, table: &str) -> String;

    /// Runs SQL on a connection that no store knows.
    fn run(&self, sql: &str) -> impl Future<Output = ()> + Send;

    /// The one number that a query on such a connection gives.
    fn number(&self, sql: &str) -> impl Future<Output = i64> + Send;

    /// Runs SQL as a handler does, one or more statements as they are.
    fn execute(tx: &mut Self::Connection, sql: &str) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Runs SQL in a nested transaction, and ends that.
    fn nested(tx: &mut Self::Connection, sql: &str, end: End) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// An expression in SQL: what the column `column` of a table of idem's holds, a time, so much earlier.
    fn earlier(column: &str, by: Duration) -> String;

    /// SQL that makes the database refuse each `INSERT` into, or `UPDATE` of, a table of idem's own: of rows of this key, or
    /// of all handlers' rows. It refuses them as the message's fault, as a CHECK constraint does.
    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String;

    /// SQL that ends what [`refuse`](Self::refuse) began.
    fn allow(&self, table: &str) -> String;

    /// How many transactions of this world wait for another one; `None` where that cannot be told.
    fn waiting(&self) -> impl Future<Output = Option<i64>> + Send;
}

/// What a database can do.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Several transactions write at once. Otherwise `begin` waits until the one before has ended.
    pub concurrent: bool,
    /// A failed statement aborts its transaction. Otherwise whatever worked can be committed.
    pub errors_abort: bool,
    /// The database refuses the COMMIT of every handler. Otherwise only that of one that shares its transaction with others.
    pub refuses_commit: bool,
    /// The store has a number of connections, and refuses a worker that needs more.
    pub bounded: bool,
    /// A statement that breaks the connection which runs it.
    pub suicide: Option<&'static str>,
    /// A statement that fails as one does that lost against a concurrent transaction.
    pub lost_race: Option<&'static str>,
    /// A statement that checks what was deferred until COMMIT.
    pub check_constraints: Option<&'static str>,
    /// A statement that runs for at least 30 seconds.
    pub long: &'static str,
    /// One that runs for so long whatever the limits of its session are.
    pub stuck: &'static str,
}

/// How a store is set up.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    /// How long claims are kept, where it is not the default.
    pub retention: Option<Duration>,
    /// How many connections there are, where it is not the default.
    pub connections: Option<usize>,
}

/// How a handler ends a nested transaction.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// By `commit`.
    Commit,
    /// By `rollback`.
    Rollback,
    /// By dropping it.
    Drop,
}
