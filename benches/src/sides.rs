//! All sides, ready to run.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use idem_brokers::{Broker as _, Sqs};
use sqlx::{Connection, PgConnection, PgPool};

use crate::hand_written::{self, HandWritten};
use crate::machine::cpu;
use crate::message::{self, Claims, SCHEMA};
use crate::options::Options;
use crate::plan::{Broker, Case, Side, Size, WARM_UP, Work, on_broker};
use crate::samples::Sample;
use crate::servers::{Servers, run_peer};
use crate::sqlite::Files;
use crate::sqs;
use crate::tables::{Table, log, run};
use crate::worker::{Handler, How, NAME, steady};

/// The maximum concurrency of any side.
pub(crate) const LANES: usize = 16;

/// The number of different messages that are delivered repeatedly.
const SEEN: usize = 5_000;

pub(crate) struct Sides<'a> {
    servers: &'a Servers,
    /// The connection for checks and cleanup.
    pub(crate) conn: PgConnection,
    /// The pool of the sides without idem.
    pool: PgPool,
    pub(crate) tables: Vec<Table>,
    peer: Option<PathBuf>,
    sqlite: Files,
    /// Messages that idem and the loop have already processed, with claims in separate tables.
    seen: Vec<Bytes>,
    twice: Table,
}

impl<'a> Sides<'a> {
    /// Connects, and fills tables of these sizes.
    pub(crate) async fn new(
        servers: &'a Servers,
        options: &Options,
        sizes: BTreeSet<Size>,
        peer: Option<PathBuf>,
    ) -> Result<Self> {
        let url = &servers.database;
        let mut conn = PgConnection::connect(url).await?;
        if servers.owns_database {
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
        let pool = hand_written::pool(url, LANES as u32).await?;
        let twice = Table::of(&mut conn, url, "idem_bench_twice").await?;
        let seen = if options.cases().iter().any(|case| case.work == Work::Duplicates) { SEEN } else { 0 };
        let seen = message::fresh(seen)?;
        if !seen.is_empty() {
            idem(Work::Fresh, LANES).run(&twice.store, seen.clone()).await?;
            HandWritten::new(&pool, &again(), Work::Fresh).run(LANES, seen.clone()).await?;
        }
        Ok(Self { servers, conn, pool, tables, peer, sqlite: Files::new()?, seen, twice })
    }

    pub(crate) fn table(&self, size: Size) -> Result<&Table> {
        self.tables.iter().find(|table| table.size == size).context("there is no table of this size")
    }

    /// Runs one case once, and checks that the work was done.
    pub(crate) async fn measure(&mut self, case: &Case, messages: usize) -> Result<Sample> {
        self.clean(case).await?;
        if let Some(broker) = case.broker() {
            let sample = self.run_from_broker(case, self.servers.address(broker)?, message::fresh(messages)?).await?;
            self.verify(case, messages).await?;
            return Ok(sample);
        }
        let children = case.side == Side::Peer;
        let (before, time) = (log(&mut self.conn).await?, cpu(children)?);
        let rate = self.run(case, messages).await?;
        let (time, log) = (cpu(children)?.saturating_sub(time), log(&mut self.conn).await? - before);
        self.verify(case, messages).await?;
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let (client, wal) = (micros(time) / messages as f64, log / messages as f64);
        Ok(Sample { rate, client, wal, ..Sample::default() })
    }

    /// Runs one case from the broker at this address, behind its warm-up.
    async fn run_from_broker(&mut self, case: &Case, address: &str, messages: Vec<Bytes>) -> Result<Sample> {
        let (store, lanes) = (self.table(Size::Empty)?.store.clone(), case.lanes);
        let hand_written = HandWritten::new(&self.pool, &self.hand_written(case)?, case.work);
        let (messages, conn) = ((messages, WARM_UP), &mut self.conn);
        match case.side {
            Side::SqsHandWritten => {
                steady::<Sqs>(address, messages, conn, async |queue, gate| {
                    sqs::hand_written(address, &hand_written, lanes, queue, gate).await
                })
                .await
            }
            // Its requests are counted.
            Side::Broker(Broker::Sqs, batch) => {
                let how = How { batch, ..idem(case.work, lanes) };
                steady::<Sqs>(address, messages, conn, async |queue, gate| {
                    how.run_from(&store, sqs::source(address).await?, queue, gate).await
                })
                .await
            }
            Side::Broker(broker, batch) => {
                let how = How { batch, ..idem(case.work, lanes) };
                on_broker!(broker, B => steady::<B>(address, messages, conn, async |queue, gate| {
                    how.run_from(&store, B::default_source(address, NAME).await?, queue, gate).await
                }).await)
            }
            _ => bail!("this side has no broker"),
        }
    }

    async fn run(&mut self, case: &Case, count: usize) -> Result<f64> {
        let work = case.work;
        let messages = match case.work {
            Work::Duplicates => message::repeated(&self.seen, count),
            Work::Fresh if case.size == Size::Growing => message::growing(count)?,
            Work::Fresh | Work::Staged => message::fresh(count)?,
        };
        let lanes = case.lanes;
        let idem = idem(work, lanes);
        match case.side {
            Side::Autocommit => hand_written::autocommit(&self.pool, lanes, messages).await,
            Side::HandWritten => {
                HandWritten::new(&self.pool, &self.hand_written(case)?, work).run(lanes, messages).await
            }
            Side::Idem => idem.run(&self.store(case)?.store, messages).await,
            Side::Natural => How { handler: Handler::Natural, ..idem }.run(&self.store(case)?.store, messages).await,
            Side::Inbox => How { inbox: true, ..idem }.run(&self.store(case)?.store, messages).await,
            Side::Batch(batch) => How { batch, ..idem }.run(&self.store(case)?.store, messages).await,
            Side::BatchHandler(batch) => {
                How { batch, handler: Handler::Whole, ..idem }.run(&self.store(case)?.store, messages).await
            }
            Side::Peer => {
                let program = self.peer.as_ref().context("backbone-outbox was not built")?;
                run_peer(program, &self.servers.database, lanes, count).await
            }
            Side::Sqlite => self.sqlite.idem(lanes, messages).await,
            Side::SqliteHandWritten => self.sqlite.hand_written(lanes, messages).await,
            Side::SqsHandWritten | Side::Broker(..) => bail!("a side from a broker is measured behind its warm-up"),
        }
    }

    fn store(&self, case: &Case) -> Result<&Table> {
        match case.work {
            Work::Duplicates => Ok(&self.twice),
            Work::Fresh | Work::Staged => self.table(case.size),
        }
    }

    /// Returns the claims table of the loop: idem's own table, if the case uses a large table.
    fn hand_written(&self, case: &Case) -> Result<Claims> {
        Ok(match (case.work, case.size) {
            (Work::Duplicates, _) => again(),
            (_, Size::Empty) => Claims { table: "idem_bench.hand_written".to_owned(), handler: 1 },
            (_, size) => self.table(size)?.claims.clone(),
        })
    }

    /// Removes the previous side's rows. Large tables keep the added rows, which are few.
    async fn clean(&mut self, case: &Case) -> Result<()> {
        let text = format!(
            "TRUNCATE idem_bench.effects, idem_bench.hand_written, {SCHEMA}.processed_messages,
                 idem_bench.hand_written_outbox, {SCHEMA}.outbox_messages"
        );
        run(&mut self.conn, text).await?;
        if case.side == Side::Peer {
            run(&mut self.conn, "DROP SCHEMA IF EXISTS idem_bench_peer CASCADE".to_owned()).await?;
        }
        Ok(())
    }

    /// Checks that no side skipped work: each message has its effect, once.
    async fn verify(&mut self, case: &Case, messages: usize) -> Result<()> {
        let text = format!(
            "SELECT (SELECT count(*) FROM idem_bench.effects),
                 (SELECT count(*) FROM idem_bench.hand_written_outbox) + (SELECT count(*) FROM {SCHEMA}.outbox_messages)"
        );
        let (effects, staged): (i64, i64) = sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_one(&mut self.conn).await?;
        let due = match (case.side, case.work) {
            // They count for themselves.
            (Side::Peer | Side::Sqlite | Side::SqliteHandWritten, _) => return Ok(()),
            (_, Work::Fresh) => (messages as i64, 0),
            (_, Work::Staged) => (messages as i64, messages as i64),
            (_, Work::Duplicates) => (0, 0),
        };
        if (effects, staged) != due {
            bail!("{messages} messages made {effects} rows and staged {staged} messages: {due:?} is right");
        }
        let claims = match case.side {
            _ if case.size != Size::Empty || case.work == Work::Duplicates => return Ok(()),
            Side::Idem | Side::Inbox | Side::Batch(_) | Side::BatchHandler(_) => messages as i64,
            Side::Natural => 0,
            _ => return Ok(()),
        };
        let text = format!("SELECT count(*) FROM {SCHEMA}.processed_messages");
        let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(text)).fetch_one(&mut self.conn).await?;
        ensure!(found == claims, "{messages} messages made {found} claims");
        Ok(())
    }
}

/// Returns the settings of idem with its defaults.
fn idem(work: Work, lanes: usize) -> How {
    How { lanes, batch: 1, handler: Handler::Of(work), inbox: false }
}

/// Returns the loop's claims of the repeated messages.
fn again() -> Claims {
    Claims { table: "idem_bench.again".to_owned(), handler: 1 }
}
