//! The table of workers.

use idem_conformance::store::World;
use idem_conformance::until;

use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// How many rows of workers of this consumer there are.
async fn workers<W: World>(line: &Line<W>, consumer: &str) -> i64 {
    let table = line.world.own("workers");
    line.world.number(&format!("SELECT count(*) FROM {table} WHERE kind = 'worker' AND name = '{consumer}'")).await
}

/// What the workers of `billing` have counted of this kind. A minute may have passed meanwhile.
async fn counted<W: World>(line: &Line<W>, kind: &str) -> i64 {
    let minute = |minute: u8| format!("CAST(report -> '{kind}' ->> {minute} AS BIGINT)");
    let (table, both) = (line.world.own("workers"), [0, 1].map(minute).join(" + "));
    let sum = format!("SELECT CAST(coalesce(sum({both}), 0) AS BIGINT) FROM {table} WHERE name = 'billing'");
    line.world.number(&sum).await
}

/// Each outcome of a delivery is counted once, but not that it is stored before its first run.
pub async fn a_worker_counts_what_its_observer_sees<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    line.publish(Order::ok("a"));
    line.publish(Order::new("b", &[Act::Fail, Act::Ok]).by_attempt());
    line.publish(Order::new("c", &[Act::Permanent]));
    let worker = line.start();
    line.outcomes(5).await;
    // A worker that joins writes the rows of all at once.
    let other = line.start_with(Settings { consumer: "other", ..Settings::default() });
    until(async || workers(&line, "other").await == 1).await;
    let reported = |words: &[&str]| {
        let is_one = |report: &&String| words.iter().any(|word| report.contains(word));
        i64::try_from(line.reports().iter().filter(is_one).count()).unwrap()
    };
    assert_eq!(counted(&line, "processed").await, reported(&[": processed"]));
    assert_eq!(counted(&line, "duplicates").await, reported(&[": duplicate"]));
    assert_eq!(counted(&line, "failed").await, reported(&[": scheduled 1", ": dead"]));
    assert_eq!((reported(&[": processed"]), reported(&[": duplicate"])), (2, 1));
    worker.stop().await;
    other.stop().await;
}

/// Two workers of one consumer are two rows, although they share their store.
pub async fn each_worker_has_a_row<W: World>(world: W) {
    let line = Line::new(world).await;
    let (one, two) = (line.start(), line.start());
    until(async || workers(&line, "billing").await == 2).await;
    one.stop().await;
    two.stop().await;
}

/// The table is for people.
pub async fn a_worker_does_its_work_without_the_table_of_workers<W: World>(world: W) {
    let line = Line::new(world).await;
    let table = line.world.own("workers");
    line.world.run(&format!("DROP TABLE {table}")).await;
    line.publish(Order::ok("a"));
    assert_eq!(line.run(1).await, ["processed"]);
    assert_eq!(line.effects("a").await, 1);
}
