//! The requirements of the suite on a database.

use std::time::Duration;

use idem_core::{BoxError, Error, HasConnection, Store};

/// A schema or file of one database, created for one test and still empty.
pub trait World: Sized + Send + Sync + 'static {
    /// The store under test.
    type Store: Store + HasConnection<Self::Connection>;
    /// The connection that it gives to handlers.
    type Connection: Send + 'static;

    /// The features of the database.
    const FEATURES: Features;

    /// Whether the handlers of orders in the pipeline suite are natural.
    #[doc(hidden)]
    const NATURAL: bool = false;

    /// Creates a new world. Prints a line and returns `None` if the database is not available and not required.
    fn make() -> impl Future<Output = Option<Self>> + Send;

    /// Like [`make`](Self::make), for a world whose workers run in the pipeline suite as those of this one.
    #[doc(hidden)]
    fn another(&self) -> impl Future<Output = Option<Self>> + Send {
        Self::make()
    }

    /// Whether workers of the pipeline suite store their messages before they run them.
    #[doc(hidden)]
    fn inbox(&self) -> bool {
        false
    }

    /// How many messages workers of the pipeline suite run together.
    #[doc(hidden)]
    fn batch(&self) -> usize {
        1
    }

    /// A store in this world that shares no connection with others, as one in a separate process.
    fn store(&self, setup: Setup) -> impl Future<Output = Result<Self::Store, Error>> + Send;

    /// The full name of one of idem's tables: `handlers`, `processed_messages`, `inbox_messages`,
    /// `call_namespaces`, `operations`, `workers`.
    fn own(&self, table: &str) -> String;

    /// The full name of a table of the suite.
    fn name(&self, table: &str) -> String;

    /// Runs SQL on a connection outside any store.
    fn run(&self, sql: &str) -> impl Future<Output = ()> + Send;

    /// The single number that a query on such a connection returns.
    fn number(&self, sql: &str) -> impl Future<Output = i64> + Send;

    /// Runs SQL as a handler does, one or more statements, unprepared.
    fn execute(tx: &mut Self::Connection, sql: &str) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Runs SQL in a nested transaction, then ends it.
    fn nested(tx: &mut Self::Connection, sql: &str, end: End) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// Runs one statement as a handler does, and tells whether it has changed a row.
    fn changes(tx: &mut Self::Connection, sql: &str) -> impl Future<Output = Result<bool, BoxError>> + Send;

    /// A SQL expression: the time in the column `column` of an idem table, moved back by `by`.
    fn earlier(column: &str, by: Duration) -> String;

    /// Assignments that set back when a worker may have a row: when it runs, and when its lease ends.
    fn due_earlier(by: Duration) -> String {
        let [run_at, locked_until] = ["run_at", "locked_until"].map(|column| Self::earlier(column, by));
        format!("run_at = {run_at}, locked_until = {locked_until}")
    }

    /// SQL that makes the database reject each `INSERT` into, or `UPDATE` of, an idem table: for rows of this key, or
    /// for all rows. The rejection is the message's fault, as that of a CHECK constraint is.
    fn refuse(&self, what: &str, table: &str, key: Option<&str>) -> String;

    /// SQL that undoes [`refuse`](Self::refuse).
    fn allow(&self, table: &str) -> String;

    /// How many transactions of this world wait for another one; `None` if the database cannot tell.
    fn waiting(&self) -> impl Future<Output = Option<i64>> + Send;
}

/// The features of a database.
// Exhaustive: the suite tests what a world states, so a world that does not state a new feature must not compile.
#[derive(Debug, Clone, Copy)]
pub struct Features {
    /// Several transactions write at once. Otherwise `begin` waits until the previous one has ended.
    pub concurrent: bool,
    /// A failed statement aborts its transaction. Otherwise the statements that worked can be committed.
    pub errors_abort: bool,
    /// The database refuses the COMMIT of every handler. Otherwise it refuses only that of a handler that shares its
    /// transaction with others.
    pub refuses_commit: bool,
    /// The store has a limited number of connections, which its workers share.
    pub bounded: bool,
    /// A statement that breaks its connection.
    pub terminate_backend: Option<&'static str>,
    /// A statement that fails as one that lost against a concurrent transaction.
    pub lost_race: Option<&'static str>,
    /// A statement that checks constraints deferred until COMMIT.
    pub check_constraints: Option<&'static str>,
    /// A query for how many transactions can be prepared at once for another session to commit (PREPARE TRANSACTION), if
    /// the database has that.
    pub prepares: Option<&'static str>,
    /// A statement that runs for at least 30 seconds.
    pub long: &'static str,
    /// A statement that runs that long regardless of the session's limits.
    pub stuck: &'static str,
    /// A statement that runs for two and a half seconds; less where the time limits of statements count from the
    /// beginning of the transaction.
    pub lasts: &'static str,
}

/// The settings of a store.
#[derive(Debug, Clone, Copy, Default)]
pub struct Setup {
    /// How long claims are kept, if not the default.
    pub retention: Option<Duration>,
    /// How many connections there are, if not the default.
    pub connections: Option<usize>,
}

/// How a handler ends a nested transaction.
// Exhaustive: a world that does not play a new way would let the suite pass without a test.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// By `commit`.
    Commit,
    /// By `rollback`.
    Rollback,
    /// By dropping it.
    Drop,
    /// It never begins: the future of its `begin` is dropped.
    Unbegun,
}
