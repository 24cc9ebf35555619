//! All sides, ready to run.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use sqlx::{Connection, PgConnection, PgPool};

use crate::brokers::Brokers;
use crate::by_hand::{self, ByHand, Shape};
use crate::case::{Case, Side, Size, Work};
use crate::message::{self, Claims, SCHEMA};
use crate::options::Options;
use crate::peers::Peer;
use crate::pgbench::Pgbench;
use crate::samples::Sample;
use crate::single::cpu;
use crate::sqlite::Files;
use crate::tables::{Table, log, run};
use crate::{autocommit, batches, by_hand_brokers, raw, steady, worker};

/// The maximum concurrency of any side.
pub(crate) const LANES: usize = 16;

/// The number of different messages that are delivered repeatedly.
const SEEN: usize = 5_000;

pub(crate) struct Sides {
    url: String,
    /// The connection for checks and cleanup.
    pub(crate) conn: PgConnection,
    /// The pool of the sides without idem.
    pool: PgPool,
    pub(crate) tables: Vec<Table>,
    pgbench: Option<Pgbench>,
    pub(crate) peers: Vec<Peer>,
    sqlite: Files,
    pub(crate) brokers: Brokers,
    /// Messages that idem and the loop have already processed, with claims in separate tables.
    seen: Vec<Bytes>,
    twice: Table,
}

impl Sides {
    /// Connects, and fills tables of these sizes.
    pub(crate) async fn new(url: &str, options: &Options, sizes: BTreeSet<Size>) -> Result<Self> {
        let mut conn = PgConnection::connect(url).await?;
        if options.own_server {
            // Otherwise a checkpoint would slow down the side that runs at the time, and cause full-page writes.
            for setting in ["checkpoint_timeout = '1h'", "max_wal_size = '16GB'"] {
                run(&mut conn, format!("ALTER SYSTEM SET {setting}")).await?;
            }
            run(&mut conn, "SELECT pg_reload_conf()".to_owned()).await?;
        }
        message::tables(&mut conn).await?;
        let mut tables = Vec::new();
        for size in sizes {
            tables.push(Table::new(&mut conn, url, size, options.rows).await?);
        }
        let pool = by_hand::pool(&url.parse()?, Shape::Guarded, LANES as u32).await?;
        let twice = Table::of(&mut conn, url, "idem_bench_twice").await?;
        let seen = message::fresh(SEEN.min(options.rows / 20))?;
        worker::run(&twice.store, LANES, Work::Fresh, seen.clone()).await?;
        ByHand::new(&pool, Shape::Guarded, &again(), Work::Fresh).run(LANES, seen.clone()).await?;
        let programs = options.peer.iter().filter_map(|(name, program)| Some((name.clone(), program.clone()?)));
        Ok(Self {
            url: url.to_owned(),
            pool,
            tables,
            pgbench: Pgbench::new(url).ok(),
            peers: programs.map(|(name, program)| Peer { name, program }).collect(),
            sqlite: Files::new().await?,
            brokers: Brokers::look(),
            seen,
            twice,
            conn,
        })
    }

    pub(crate) fn table(&self, size: Size) -> Result<&Table> {
        self.tables.iter().find(|table| table.size == size).context("there is no table of this size")
    }

    /// Runs one case once, and checks that the work was done.
    pub(crate) async fn measure(&mut self, case: &Case, messages: usize) -> Result<Sample> {
        self.clean(case).await?;
        if let (Side::Broker(broker, batch), warm_up @ 1..) = (case.side, case.warm_up()) {
            let (store, how) = (self.table(Size::Empty)?.store.clone(), (case.lanes, batch));
            let warm = (message::fresh(messages)?, warm_up);
            let sample = steady::run((&self.brokers, broker), &store, how, warm, &mut self.conn).await?;
            self.verify(case, messages).await?;
            return Ok(sample);
        }
        let children = matches!(case.side, Side::Pgbench | Side::Peer(_));
        let (before, time) = (log(&mut self.conn).await?, cpu(children)?);
        let rate = self.run(case, messages).await?;
        let (time, log) = (cpu(children)?.saturating_sub(time), log(&mut self.conn).await? - before);
        self.verify(case, messages).await?;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        Ok(Sample { rate, client: micros(time) / messages as f64, wal: log / messages as f64 })
    }

    async fn run(&mut self, case: &Case, count: usize) -> Result<f64> {
        let work = case.work;
        let messages = match case.work {
            Work::Duplicates => message::repeated(&self.seen, count),
            Work::Fresh if case.size == Size::Growing => message::growing(count)?,
            Work::Fresh | Work::Hot | Work::Staged => message::fresh(count)?,
        };
        let lanes = case.lanes;
        match case.side {
            Side::Autocommit => autocommit::run(&self.pool, lanes, work == Work::Hot, messages).await,
            Side::ByHand => {
                let claims = self.by_hand(case)?;
                ByHand::new(&self.pool, Shape::Guarded, &claims, work).run(lanes, messages).await
            }
            Side::Idem => worker::run(&self.store(case)?.store, lanes, work, messages).await,
            Side::Natural => worker::run_natural(&self.store(case)?.store, lanes, messages).await,
            Side::Batch(most) => batches::run(&self.store(case)?.store, lanes, most, work, messages).await,
            Side::BatchHandler(most) => {
                batches::run_batch_handler(&self.store(case)?.store, lanes, most, messages).await
            }
            Side::Raw => raw::run(&self.pool, &self.table(case.size)?.claims, lanes, messages).await,
            Side::Pgbench => self.pgbench.as_ref().context("pgbench is not installed")?.run(lanes, count).await,
            Side::Peer(at) => self.peers.get(at).context("there is no such peer")?.run(&self.url, lanes, count).await,
            Side::Sqlite => self.sqlite.idem(lanes, messages).await,
            Side::SqliteByHand => self.sqlite.by_hand(lanes, messages).await,
            Side::ByHandBroker(broker) => {
                let by_hand = ByHand::new(&self.pool, Shape::Guarded, &self.by_hand(case)?, work);
                by_hand_brokers::run(&self.brokers, broker, &by_hand, lanes, messages).await
            }
            Side::Broker(broker, batch) => {
                let store = &self.table(Size::Empty)?.store;
                self.brokers.run(broker, store, (lanes, batch), messages).await
            }
        }
    }

    fn store(&self, case: &Case) -> Result<&Table> {
        match case.work {
            Work::Duplicates => Ok(&self.twice),
            Work::Fresh | Work::Hot | Work::Staged => self.table(case.size),
        }
    }

    /// Returns the claims table of the loop: idem's own table, if the case uses a large table.
    fn by_hand(&self, case: &Case) -> Result<Claims> {
        Ok(match (case.work, case.size) {
            (Work::Duplicates, _) => again(),
            (_, Size::Empty) => Claims { table: "idem_bench.by_hand".to_owned(), handler: 1 },
            (_, size) => self.table(size)?.claims.clone(),
        })
    }

    /// Removes the previous side's rows. Large tables keep the added rows, which are few.
    async fn clean(&mut self, case: &Case) -> Result<()> {
        let text = format!(
            "TRUNCATE idem_bench.effects, idem_bench.by_hand, idem_bench.pgbench, {SCHEMA}.processed_messages,
                 idem_bench.by_hand_outbox, {SCHEMA}.outbox_messages;
             TRUNCATE idem_bench.hot; INSERT INTO idem_bench.hot SELECT generate_series(0, 199)"
        );
        run(&mut self.conn, text).await?;
        if matches!(case.side, Side::Peer(_)) {
            run(&mut self.conn, "DROP SCHEMA IF EXISTS idem_bench_peer CASCADE".to_owned()).await?;
        }
        Ok(())
    }

    /// Checks that no side skipped work: each message has its effect, once.
    async fn verify(&mut self, case: &Case, messages: usize) -> Result<()> {
        let text = format!(
            "SELECT (SELECT count(*) FROM idem_bench.effects), (SELECT sum(counter)::bigint FROM idem_bench.hot),
                 (SELECT count(*) FROM idem_bench.by_hand_outbox) + (SELECT count(*) FROM {SCHEMA}.outbox_messages)"
        );
        let (effects, counted, staged): (i64, i64, i64) =
            sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_one(&mut self.conn).await?;
        let due = match (case.side, case.work) {
            // pgbench runs whole transactions for each client; the others count for themselves.
            (Side::Pgbench | Side::Peer(_) | Side::Sqlite | Side::SqliteByHand, _) => return Ok(()),
            (_, Work::Fresh) => (messages as i64, 0, 0),
            (_, Work::Hot) => (0, messages as i64, 0),
            (_, Work::Staged) => (messages as i64, 0, messages as i64),
            (_, Work::Duplicates) => (0, 0, 0),
        };
        if (effects, counted, staged) != due {
            bail!(
                "{messages} messages made {effects} rows, were counted {counted} times and staged {staged} messages: \
                 {due:?} is right"
            );
        }
        let idem = matches!(case.side, Side::Idem | Side::Batch(_) | Side::BatchHandler(_));
        if idem && case.size == Size::Empty && case.work != Work::Duplicates {
            let text = format!("SELECT count(*) FROM {SCHEMA}.processed_messages");
            let claims: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&mut self.conn).await?;
            ensure!(claims == messages as i64, "{messages} messages made {claims} claims");
        }
        if case.side == Side::Natural {
            let text = format!("SELECT count(*) FROM {SCHEMA}.processed_messages");
            let claims: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&mut self.conn).await?;
            ensure!(claims == 0, "a natural handler made {claims} claims");
        }
        Ok(())
    }
}

/// Returns the loop's claims of the repeated messages.
fn again() -> Claims {
    Claims { table: "idem_bench.again".to_owned(), handler: 1 }
}
