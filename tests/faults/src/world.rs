//! A separate schema, broker and workers per test.

use std::time::Duration;

use idem::codec::Json;
use idem::handler::WithHandlers;
use idem::operator::{Filter, Operator, Page};
use idem::store::postgres::PostgresOptions;
use idem::store::{Row, Transactions};
use idem::{Error, Health, IsolationLock, Postgres, RetryPolicy, Source, Store, Worker};
use idem_test::Broker;
use idem_test::harness::{TracedHandler, TracedProcess, TracedSource, TracedStore};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Journal, Mode, Order, Stage, act, variable, within};

/// A number from the environment, with which a long campaign asks for more than CI can afford.
pub fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

/// A unique name.
pub fn fresh(what: &str) -> String {
    format!("{what}_{}", Uuid::new_v4().simple())
}

/// Retries with delays short enough for a test.
pub fn quick(attempts: u32) -> RetryPolicy {
    RetryPolicy::new().max_attempts(attempts).min_delay(Duration::from_millis(10)).factor(1.0)
}

/// The world of one test.
pub struct World {
    /// The URL of the database. Its application name is that of the schema, to identify the connections.
    pub url: String,
    /// The schema of idem's tables and of the test's.
    pub schema: String,
    /// The connections through which the test observes the database.
    pub pool: PgPool,
    /// The in-process broker.
    pub broker: Broker,
    /// The state that the handler sees.
    pub stage: Stage,
    /// The outcomes that the workers reported.
    pub journal: Journal,
}

/// The consumer of all workers here.
const CONSUMER: &str = "faults";

/// A worker before its handler is added.
pub type Tuned<Src> = Worker<Postgres, Src, Stage>;
/// One whose steps are written into a trace.
pub type Traced<Src> = Worker<TracedStore<Postgres>, TracedSource<Src>, Stage>;

impl World {
    /// Creates a world on the shared server; `None` if there is no server to test against.
    pub async fn new() -> Option<Self> {
        Some(Self::at(&variable("DATABASE_URL")?).await)
    }

    /// Creates a world on this server.
    pub async fn at(url: &str) -> Self {
        let schema = fresh("idem_faults");
        let world = Self::existing(url, &schema);
        let tables = format!(
            "CREATE SCHEMA {schema};
             CREATE TABLE {schema}.effects (id text NOT NULL, attempt int NOT NULL);
             CREATE TABLE {schema}.business (n int NOT NULL); INSERT INTO {schema}.business VALUES (0)"
        );
        world.pool.execute(sqlx::raw_sql(AssertSqlSafe(tables))).await.unwrap();
        world
    }

    /// A world that another process has created.
    pub fn existing(url: &str, schema: &str) -> Self {
        crate::panics::announce();
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy(url).unwrap();
        let named = format!("{url}{}application_name={schema}", if url.contains('?') { '&' } else { '?' });
        Self {
            stage: Stage::new(url, schema),
            url: named,
            schema: schema.to_owned(),
            pool,
            broker: Broker::new(),
            journal: Journal::default(),
        }
    }

    /// The options to connect to the database.
    pub fn options(&self) -> PostgresOptions {
        Postgres::options(&self.url).schema(&self.schema)
    }

    /// A separate store handle.
    pub async fn store(&self) -> Postgres {
        self.options().connect().await.unwrap()
    }

    /// Publishes to the queue `orders` of the in-process broker.
    pub fn publish(&self, order: &Order) {
        self.broker.publish_json("orders", order).unwrap();
    }

    /// Starts a worker that acts as a separate process, with delays short enough for a test.
    pub fn start<Src: Source>(
        &self,
        store: &Postgres,
        source: Src,
        tune: impl FnOnce(Tuned<Src>) -> Tuned<Src>,
    ) -> Running {
        run(tune(self.worker(store.clone(), source)).handler::<act>())
    }

    /// Starts a worker in the same way, whose steps are written into a trace.
    pub fn start_traced<Src: Source>(
        &self,
        process: &TracedProcess,
        store: &Postgres,
        source: Src,
        mode: Mode,
        tune: impl FnOnce(Traced<Src>) -> Traced<Src>,
    ) -> Running {
        let source = process.source::<act, _>(source, mode == Mode::Inbox);
        let worker = tune(mode.tune(self.worker(process.store(store.clone()), source)));
        run(worker.handler::<TracedHandler<act, Postgres>>())
    }

    /// A worker before its handler is added.
    fn worker<S: Store, Src: Source>(&self, store: S, source: Src) -> Worker<S, Src, Stage> {
        let journal = self.journal.clone();
        Worker::new(CONSUMER, store, source)
            .state(self.stage.clone())
            .isolation_lock(IsolationLock::new())
            .poll_interval(Duration::from_millis(50))
            .lease_duration(Duration::from_secs(1))
            .retry(quick(5))
            .observe(move |observed| journal.note(observed))
    }

    /// The operator's view of the inbox.
    pub fn operator(&self, store: &Postgres) -> Operator<Postgres> {
        Operator::new(store).consumer(CONSUMER)
    }

    /// All inbox rows, dead ones first.
    pub async fn rows(&self, store: &Postgres) -> Vec<Row> {
        let (dead, scheduled) = (Filter::default(), Filter::new().scheduled());
        let page = Page::new(10_000);
        let mut rows = self.operator(store).list(&dead, page).await.unwrap().rows;
        rows.extend(self.operator(store).list(&scheduled, page).await.unwrap().rows);
        rows
    }

    /// The only inbox row.
    pub async fn row(&self, store: &Postgres) -> Row {
        let mut rows = self.rows(store).await;
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }

    /// The attempts that wrote effects of this id.
    pub async fn effects(&self, id: &str) -> Vec<i32> {
        let asked = self.stage.sql("SELECT attempt FROM {schema}.effects WHERE id = $1");
        sqlx::query_scalar(asked).bind(id).fetch_all(&self.pool).await.unwrap()
    }

    /// All effects, sorted.
    pub async fn all_effects(&self) -> Vec<(String, i32)> {
        let asked = self.stage.sql("SELECT id, attempt FROM {schema}.effects ORDER BY id, attempt");
        sqlx::query_as(asked).fetch_all(&self.pool).await.unwrap()
    }

    /// The number that a statement on the schema returns.
    pub async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(self.stage.sql(sql)).fetch_one(&self.pool).await.unwrap()
    }

    /// How many of the stores' connections match the condition in `pg_stat_activity`.
    pub async fn sessions(&self, like: &str) -> i64 {
        let asked = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{{schema}}' AND {like}");
        self.number(&asked).await
    }

    /// Removes the world.
    pub async fn end(self) {
        self.pool.execute(self.stage.sql("DROP SCHEMA {schema} CASCADE")).await.unwrap();
    }
}

fn run<S: Store, Src: Source>(worker: Worker<S, Src, Stage, Json, WithHandlers>) -> Running {
    let (health, shutdown) = (worker.health(), CancellationToken::new());
    let task = tokio::spawn(worker.run_until(shutdown.clone().cancelled_owned()));
    Running { health, shutdown, task }
}

/// A running worker. Dropping it ends it as a crash does.
pub struct Running {
    /// The health of the worker.
    pub health: Health,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Starts its shutdown.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
    }

    /// Drains it and waits until it ends.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.shut_down();
        within("the worker ends", &mut self.task).await.unwrap()
    }

    /// Waits until it ends, however long that takes.
    pub async fn end(mut self) -> Result<(), Error> {
        (&mut self.task).await.unwrap()
    }

    /// Waits until it ends, which it is asked to at the signal.
    pub async fn end_at(mut self, signal: impl Future<Output = ()>) -> Result<(), Error> {
        tokio::select! {
            ended = &mut self.task => return ended.unwrap(),
            () = signal => {}
        }
        self.shut_down();
        (&mut self.task).await.unwrap()
    }

    /// Drops its future, as a crash would, and waits until that is done.
    pub async fn crash(mut self) {
        self.task.abort();
        let _ = within("the worker is gone", &mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whether the store answers at once, which it does while it has a free connection.
pub async fn answers(store: &Postgres) -> bool {
    matches!(tokio::time::timeout(Duration::from_secs(5), store.ping()).await, Ok(Ok(())))
}
