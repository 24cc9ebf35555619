//! idem's tables with existing claims: none, or the requested number; the bytes of each; and the cost of pruning: claims per
//! second, and the throughput that a concurrent load loses.

use std::fmt;
use std::time::Instant;

use anyhow::{Context, Result};
use idem::Postgres;
use idem::store::Consumers;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::message::{self, Claims, SCHEMA};
use crate::options::Options;
use crate::plan::{Size, Work};
use crate::sides::{LANES, Sides};
use crate::worker::{Handler, How};

/// A store whose claims are in a separate schema.
pub(crate) struct Table {
    pub(crate) size: Size,
    pub(crate) store: Postgres,
    pub(crate) claims: Claims,
}

/// The disk space of a claim.
#[derive(Debug, Clone)]
pub(crate) struct Bytes {
    pub(crate) claims: i64,
    pub(crate) total: f64,
    pub(crate) heap: f64,
    pub(crate) primary_key: f64,
}

/// The number of claims per statement, so that the progress can be printed.
const CHUNK: usize = 1_000_000;

impl Table {
    /// Creates and fills the table, unless an earlier run on this server has left it full.
    pub(crate) async fn new(conn: &mut PgConnection, url: &str, size: Size, rows: usize) -> Result<Self> {
        let (schema, rows) = match size {
            Size::Empty => (SCHEMA, 0),
            Size::Full => ("idem_bench_full", rows),
            Size::Growing => ("idem_bench_growing", rows),
        };
        let key = if size == Size::Growing { GROWING } else { RANDOM };
        Self::filled(conn, url, schema, (rows, key)).await.map(|table| Self { size, ..table })
    }

    /// Creates an empty table in a separate schema, replacing an existing one.
    pub(crate) async fn of(conn: &mut PgConnection, url: &str, schema: &str) -> Result<Self> {
        run(conn, format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
        Self::filled(conn, url, schema, (0, RANDOM)).await
    }

    /// Creates and fills a table in a separate schema, unless an earlier run on this server has left it full.
    pub(crate) async fn kept(conn: &mut PgConnection, url: &str, schema: &str, rows: usize) -> Result<Self> {
        Self::filled(conn, url, schema, (rows, RANDOM)).await
    }

    async fn filled(conn: &mut PgConnection, url: &str, schema: &str, (rows, key): (usize, &str)) -> Result<Self> {
        let filled = format!("{rows} claims");
        let asked = "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = $1";
        let found: Option<Option<String>> = sqlx::query_scalar(asked).bind(schema).fetch_optional(&mut *conn).await?;
        let there = found.flatten().is_some_and(|comment| comment == filled);
        if !there {
            run(conn, format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
        }
        let store = Postgres::options(url).schema(schema).connect().await?;
        let register = format!(
            "INSERT INTO {schema}.handlers (consumer, name, retention) VALUES ('bench', 'order_paid', '720 hours')
             ON CONFLICT (consumer, name) DO UPDATE SET name = excluded.name RETURNING id"
        );
        let handler: i32 = sqlx::query_scalar(AssertSqlSafe(register)).fetch_one(&mut *conn).await?;
        let claims = Claims { table: format!("{schema}.processed_messages"), handler };
        if !there && rows > 0 {
            fill(conn, &claims, rows, key).await?;
            run(conn, format!("COMMENT ON SCHEMA {schema} IS '{filled}'")).await?;
        }
        Ok(Self { size: Size::Empty, store, claims })
    }

    /// Returns the disk space of a claim, including that of its indexes.
    pub(crate) async fn bytes(&self, conn: &mut PgConnection) -> Result<Option<Bytes>> {
        let table = &self.claims.table;
        let text = format!(
            "SELECT count(*), pg_total_relation_size('{table}')::float8, pg_relation_size('{table}')::float8,
                    pg_relation_size('{table}_pkey')::float8
             FROM {table}"
        );
        let asked = sqlx::query_as(AssertSqlSafe(text)).fetch_one(&mut *conn).await;
        let (claims, total, heap, primary_key): (i64, f64, f64, f64) = asked.context("the claims cannot be sized")?;
        if claims == 0 {
            return Ok(None);
        }
        let each = |bytes: f64| bytes / claims as f64;
        Ok(Some(Bytes { claims, total: each(total), heap: each(heap), primary_key: each(primary_key) }))
    }
}

/// The keys of claims in SQL: random UUIDs.
const RANDOM: &str = "uuid_send(gen_random_uuid())";
/// UUIDv7 of the date `moment` (RFC 9562, 5.7): its milliseconds in 6 bytes, the version, and random bytes.
const GROWING: &str = "substring(int8send((extract(epoch FROM moment) * 1000)::bigint) FROM 3) || '\\x70'::bytea
    || substring(uuid_send(gen_random_uuid()) FROM 8)";

/// Inserts claims with these keys, and dates of the last days, oldest first, as in a table that has grown.
async fn fill(conn: &mut PgConnection, Claims { table, handler }: &Claims, rows: usize, key: &str) -> Result<()> {
    for done in (0..rows).step_by(CHUNK) {
        let last = (done + CHUNK).min(rows);
        eprint!("\rfilling {table}: {done} of {rows} ");
        let text = format!(
            "INSERT INTO {table} (processed_at, handler_id, key, fingerprint)
             SELECT moment, {handler}, {key}, uuid_send(gen_random_uuid())
             FROM generate_series({done} + 1, {last}) AS n, LATERAL (
                 SELECT now() - interval '1 day' - ({rows} - n) * interval '20 milliseconds' AS moment) AS dated"
        );
        run(conn, text).await?;
    }
    eprintln!("\rfilling {table}: {rows} of {rows}");
    run(conn, format!("VACUUM (ANALYZE) {table}")).await
}

pub(crate) async fn run(conn: &mut PgConnection, text: String) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await?;
    Ok(())
}

/// Returns the end of the write-ahead log, in bytes.
pub(crate) async fn log(conn: &mut PgConnection) -> Result<f64> {
    let text = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8";
    Ok(sqlx::query_scalar(text).fetch_one(conn).await?)
}

#[derive(Debug)]
pub(crate) struct Prune {
    claims: u64,
    /// Claims per second without other load.
    alone: f64,
    /// Claims per second while a worker runs.
    beside: f64,
    /// Messages per second of that worker, without and with pruning.
    rate: f64,
    rate_beside: f64,
}

/// Prunes a hundredth of the filled table in each way. The handler's claims are kept for 30 days there.
pub(crate) async fn measure_prune(url: &str, sides: &mut Sides<'_>, options: &Options) -> Result<Prune> {
    eprintln!("prune");
    let share = (options.rows / 100).max(1);
    let table = sides.table(Size::Full)?;
    let (store, claims) = (table.store.clone(), table.claims.table.clone());
    let pruner = Postgres::options(url).schema("idem_bench_full").connect().await?;
    // Dates the claims back. This moves the rows, which never happens to claims in production, so VACUUM runs
    // afterwards.
    let age = format!(
        "UPDATE {claims} SET processed_at = processed_at - interval '60 days' WHERE ctid = ANY(ARRAY(
             SELECT ctid FROM {claims} WHERE processed_at > now() - interval '30 days' ORDER BY processed_at LIMIT {share}))"
    );
    let vacuum = format!("VACUUM (ANALYZE) {claims}");
    // One call then walks the whole table, as it would otherwise do in a twentieth of the retention.
    let back =
        "INSERT INTO idem_bench_full.pruner AS p (id, block, caught_up_to) VALUES (1, 0, now() - interval '30 days')
                ON CONFLICT (id) DO UPDATE SET caught_up_to = excluded.caught_up_to";

    run(&mut sides.conn, age.clone()).await?;
    run(&mut sides.conn, vacuum.clone()).await?;
    run(&mut sides.conn, back.to_owned()).await?;
    let (pruned, alone) = timed(&pruner).await?;

    let rate = run_worker(&store, 2_000).await?;
    run(&mut sides.conn, age).await?;
    run(&mut sides.conn, vacuum).await?;
    run(&mut sides.conn, back.to_owned()).await?;
    // Long enough for the whole pruning at half the speed that it had without other load.
    let count = (2.0 * rate * pruned as f64 / alone).clamp(2_000.0, 200_000.0) as usize;
    let rate = run_worker(&store, count).await?;
    let beside = tokio::spawn(async move { timed(&pruner).await });
    let rate_beside = run_worker(&store, count).await?;
    let (_, beside) = beside.await??;
    // The comment marks the table as full, which is no longer true.
    run(&mut sides.conn, "COMMENT ON SCHEMA idem_bench_full IS NULL".to_owned()).await?;
    Ok(Prune { claims: pruned, alone, beside, rate, rate_beside })
}

impl Prune {
    /// Returns the part of its throughput, in percent, that a worker loses beside it.
    pub(crate) fn loss(&self) -> f64 {
        (1.0 - self.rate_beside / self.rate) * 100.0
    }
}

async fn run_worker(store: &Postgres, messages: usize) -> Result<f64> {
    let how = How { lanes: LANES, batch: 1, handler: Handler::Of(Work::Fresh), inbox: false };
    how.run(store, message::fresh(messages)?).await
}

async fn timed(pruner: &Postgres) -> Result<(u64, f64)> {
    let begun = Instant::now();
    let claims = pruner.prune().await?;
    Ok((claims, claims as f64 / begun.elapsed().as_secs_f64()))
}

impl fmt::Display for Prune {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { claims, alone, beside, rate, rate_beside } = self;
        let share = rate_beside / rate;
        write!(
            f,
            "prune of {claims} claims: {alone:.0} a second alone, {beside:.0} beside a worker of {LANES} lanes, which has \
             {rate_beside:.0} messages a second meanwhile and {rate:.0} without ({share:.2})"
        )
    }
}
