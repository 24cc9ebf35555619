//! The cost of pruning: claims per second, and the throughput that a concurrent load loses.

use idem::store::Consumers;
use std::fmt;
use std::time::Instant;

use anyhow::Result;
use idem::Postgres;

use crate::case::{Size, Work};
use crate::message;
use crate::options::Options;
use crate::sides::{LANES, Sides};
use crate::tables::run;
use crate::worker::{Handler, How};

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
pub(crate) async fn measure(url: &str, sides: &mut Sides<'_>, options: &Options) -> Result<Prune> {
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
