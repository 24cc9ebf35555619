//! The rounds: all sides run in turn, so that disturbances of the machine affect all of them.

use std::time::Duration;

use anyhow::{Result, ensure};
use idem::Postgres;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection, PgPool};

use crate::by_hand::{self, Shape};
use crate::case::Work;
use crate::machine::Machine;
use crate::message::{self, BY_HAND, IDEM, SCHEMA};
use crate::pgbench::Pgbench;
use crate::report::{Column, Report, Side};
use crate::worker;

const ROUNDS: usize = 11;

/// Concurrency, and the messages of one round of one side. Rounds are short, so that the sides of one ratio run close
/// together.
const LANES: [(usize, usize); 2] = [(1, 400), (16, 3_000)];

/// Returns the CPU time, in user and kernel mode, that this process or its ended children have used so far.
pub(crate) fn cpu(children: bool) -> Result<Duration> {
    let who = if children { UsageWho::RUSAGE_CHILDREN } else { UsageWho::RUSAGE_SELF };
    let usage = getrusage(who)?;
    let micros = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0));
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

/// Runs the measurement. `scale` multiplies the number of messages.
pub(crate) async fn measure(url: &str, scale: f64) -> Result<Report> {
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    let machine = Machine::look(&mut conn).await?;
    let pgbench = Pgbench::new(url)?;
    let store = Postgres::options(url).schema(SCHEMA).connect().await?;
    let options: PgConnectOptions = url.parse()?;
    let mut columns = Vec::new();
    for (lanes, messages) in LANES {
        let messages = ((messages as f64 * scale) as usize).max(lanes);
        let mut sides = Sides::new(&options, &store, &pgbench, lanes, messages).await?;
        columns.push(sides.rounds(&mut conn).await?);
        sides.verify(&mut conn).await?;
    }
    Ok(Report { machine, columns })
}

struct Sides<'a> {
    store: &'a Postgres,
    pgbench: &'a Pgbench,
    guarded: PgPool,
    session: PgPool,
    lanes: usize,
    messages: usize,
    /// The expected number of effects of idem and of the baseline at the end.
    due: [usize; 2],
}

impl<'a> Sides<'a> {
    async fn new(
        options: &PgConnectOptions,
        store: &'a Postgres,
        pgbench: &'a Pgbench,
        lanes: usize,
        messages: usize,
    ) -> Result<Self> {
        let guarded = by_hand::pool(options, Shape::Guarded, lanes as u32).await?;
        let session = by_hand::pool(options, Shape::Session, lanes as u32).await?;
        Ok(Self { store, pgbench, guarded, session, lanes, messages, due: [0; 2] })
    }

    async fn rounds(&mut self, conn: &mut PgConnection) -> Result<Column> {
        let (lanes, messages) = (self.lanes, self.messages);
        let mut column = Column::new(lanes, messages);
        for round in 0..=ROUNDS {
            let mut order = Side::ALL;
            // Every other round runs in reverse order, so that no side always runs after the same one.
            if round % 2 == 0 {
                order.reverse();
            }
            for side in order {
                let before = cpu(side == Side::Pgbench)?;
                let rate = self.run(side).await?;
                let spent = cpu(side == Side::Pgbench)?.saturating_sub(before);
                // The first round warms up connections, statements and caches.
                if round > 0 {
                    column.add(side, rate, spent / messages as u32);
                }
            }
            if round == 0 {
                // Otherwise the checkpoint's writes would slow down the side that runs when it starts.
                sqlx::raw_sql("CHECKPOINT").execute(&mut *conn).await?;
            }
            eprint!("\r{lanes:>2} in flight: round {round} of {ROUNDS} ");
        }
        eprintln!();
        Ok(column)
    }

    /// Returns one side's messages per second in one round.
    async fn run(&mut self, side: Side) -> Result<f64> {
        let (lanes, messages) = (self.lanes, message::fresh(self.messages)?);
        let rate = match side {
            Side::Pgbench => return self.pgbench.run(lanes, self.messages).await,
            Side::Idem => worker::run(self.store, lanes, Work::Fresh, messages).await?,
            Side::Guarded => by_hand::run(&self.guarded, Shape::Guarded, lanes, messages).await?,
            Side::Session => by_hand::run(&self.session, Shape::Session, lanes, messages).await?,
            Side::Unguarded => by_hand::run(&self.guarded, Shape::Unguarded, lanes, messages).await?,
        };
        self.due[usize::from(side != Side::Idem)] += self.messages;
        Ok(rate)
    }

    /// Checks that no side skipped work: each message has one effect and one claim.
    async fn verify(self, conn: &mut PgConnection) -> Result<()> {
        let claims = [format!("{SCHEMA}.processed_messages"), "idem_bench.by_hand".to_owned()];
        for ((side, claims), due) in [IDEM, BY_HAND].into_iter().zip(claims).zip(self.due) {
            let text =
                format!("SELECT (SELECT count(*) FROM idem_bench.effects WHERE side = {side}), count(*) FROM {claims}");
            let (effects, claims): (i64, i64) = sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_one(&mut *conn).await?;
            ensure!(
                effects == due as i64 && claims == due as i64,
                "{due} messages, {effects} effects and {claims} claims of side {side}: they must be equal"
            );
        }
        let truncate = format!("TRUNCATE idem_bench.effects, idem_bench.by_hand, {SCHEMA}.processed_messages");
        sqlx::raw_sql(sqlx::AssertSqlSafe(truncate)).execute(&mut *conn).await?;
        self.guarded.close().await;
        self.session.close().await;
        Ok(())
    }
}
