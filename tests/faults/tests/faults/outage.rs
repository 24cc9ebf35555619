//! A minute without a database: stopped, paused, or with killed connections.
//!
//! The three outages run in parallel. Afterwards everything is processed by itself; no attempt was recorded, and none
//! went back to the broker.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use idem::Outcome;
use idem_faults::{Act, Lines, Order, Running, Threads, World, until, variable};
use idem_services::Instance;
use idem_test::{Publication, Queue};
use sqlx::Connection;
use tracing::Level;

/// The three outages.
static OUTAGES: LazyLock<Threads> = LazyLock::new(|| {
    let outages: [(&str, Harm, u64); 3] = [("stopped", stopped, 100), ("paused", paused, 100), ("killed", killed, 10)];
    Threads::start(outages.map(|(name, harm, millis)| (name, move || outage(name, harm, millis))))
});

type Harm = fn(&mut Instance, &str);

fn the_outage(name: &str) {
    if variable("DATABASE_URL").is_some() {
        OUTAGES.join(name);
    }
}

#[test]
fn a_minute_of_a_database_that_is_stopped_costs_no_attempt_and_no_redelivery() {
    the_outage("stopped");
}

#[test]
fn a_minute_of_a_database_that_is_paused_costs_no_attempt_and_no_redelivery() {
    the_outage("paused");
}

#[test]
fn a_minute_of_connections_that_are_killed_costs_no_attempt_and_no_redelivery() {
    the_outage("killed");
}

// ===== 60 seconds of harm each =====

fn stopped(server: &mut Instance, _: &str) {
    server.stop().unwrap();
    pass(40);
    server.start_again().unwrap();
    pass(3);
    server.kill().unwrap();
    pass(20);
    server.start_again().unwrap();
}

/// Longer than both workers' handler timeouts, then longer than the shorter one, then shorter than both.
fn paused(server: &mut Instance, _: &str) {
    for (pause, between) in [(40, 3), (14, 2), (5, 2), (1, 0)] {
        server.pause().unwrap();
        pass(pause);
        server.resume().unwrap();
        pass(between);
    }
}

fn killed(server: &mut Instance, schema: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = $1";
    runtime.block_on(async {
        let mut killer = sqlx::PgConnection::connect(server.url()).await.unwrap();
        let (start, mut kills, mut n) = (Instant::now(), 0_i64, 0);
        while start.elapsed() < Duration::from_secs(60) {
            kills += sqlx::query_scalar::<_, i64>(kill).bind(schema).fetch_one(&mut killer).await.unwrap();
            // From 50 to 400 ms, so that most runs succeed and some of each kind fail.
            tokio::time::sleep(Duration::from_millis(50 + n * 7919 % 350)).await;
            n += 1;
        }
        assert!(kills > 20, "only {kills} connections were killed");
    });
}

/// The duration itself is tested.
fn pass(seconds: u64) {
    std::thread::sleep(Duration::from_secs(seconds));
}

// ===== the same for all =====

/// Runs on this thread only, so that the log lines of this outage can be told from those of the others.
fn outage(name: &'static str, harm: Harm, millis: u64) -> String {
    let mut server = idem_services::Postgres::start().unwrap();
    let (lines, _guard) = Lines::count();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let world = World::at(server.url()).await;
        let store = world.options().connections(64).connect().await.unwrap();
        let workers =
            [("patient", Duration::from_secs(30)), ("hasty", Duration::from_secs(4))].map(|(queue, handler_timeout)| {
                let source = world.broker.queue(queue);
                (source.clone(), world.start(&store, source, |worker| worker.handler_timeout(handler_timeout)))
            });
        for (_, worker) in &workers {
            until("the worker is ready", || async { worker.health.is_ready() }).await;
        }
        let down: Vec<Arc<AtomicBool>> = workers.iter().map(|(_, worker)| watch_health(worker)).collect();

        let (over, mut published) = (Arc::new(AtomicBool::new(false)), 0);
        let (told, schema) = (over.clone(), world.schema.clone());
        let mut harm = tokio::task::spawn_blocking(move || {
            pass(1);
            harm(&mut server, &schema);
            told.store(true, Relaxed);
            server
        });
        while !over.load(Relaxed) && !harm.is_finished() {
            for (queue, _) in &workers {
                let order = Order::new(format!("{}-{published}", queue_name(queue)), Act::Take(millis));
                world.broker.publish(queue_name(queue), Publication::json(&order).unwrap());
            }
            published += 1;
            // Five a second, for as long as the outage lasts.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let ended = Instant::now();
        let server = (&mut harm).await.unwrap_or_else(|error| resume_unwind(error.into_panic()));

        // If most runs succeed during the outage, there may be nothing left to do.
        let next = world.journal.committed() + 1;
        let next = next.min(2 * published);
        world.journal.until("a message is processed", |journal| journal.committed() >= next).await;
        let first = ended.elapsed();
        world.journal.until("all messages are processed", |journal| journal.committed() >= 2 * published).await;
        let took = ended.elapsed();
        until("nothing waits", || async { world.rows(&store).await.is_empty() }).await;
        let report = format!(
            "{name}: {} messages, {first:?} to the first and {took:?} to the last after the outage; log lines:\n{lines}",
            2 * published
        );

        for (worker, down) in workers.iter().map(|(_, worker)| worker).zip(&down) {
            // A server that answers every query is healthy, however many of its connections are lost.
            assert!(name == "killed" || down.load(Relaxed), "the outage was not to be seen in the health");
            until("the worker is ready again", || async { worker.health.is_ready() }).await;
        }
        let mut expected: Vec<_> =
            (0..published).flat_map(|n| ["patient", "hasty"].map(|queue| (format!("{queue}-{n}"), 1))).collect();
        expected.sort();
        let effects = world.all_effects().await;
        assert!(effects == expected, "{} effects of {} messages", effects.len(), expected.len());
        let counted: Vec<_> = world.stage.runs().into_iter().filter(|run| run.attempt != 1).collect();
        assert!(counted.is_empty(), "{counted:?}");
        let free = |outcome: &Outcome| match outcome {
            Outcome::Processed | Outcome::Duplicate => true,
            Outcome::Scheduled { attempt, .. } => *attempt == 0,
            _ => false,
        };
        let counted: Vec<_> = world.journal.all().into_iter().filter(|(_, outcome)| !free(outcome)).collect();
        assert!(counted.is_empty(), "{counted:?}");
        for (queue, _) in &workers {
            let counts = queue.counts();
            assert_eq!((counts.redeliveries, counts.ready, counts.unsettled), (0, 0, 0), "{counts:?}");
        }
        // A pause and its end are one line each, and so is a ping of an unavailable database.
        let (warnings, all) = (lines.at_least(Level::WARN), lines.at_least(Level::DEBUG));
        let settled = world.journal.all().len();
        assert!(warnings < 2_000 && all - settled.min(all) < 4_000, "{all} lines, {warnings} warnings:\n{lines}");

        for (_, worker) in workers {
            worker.stop().await.unwrap();
        }
        tokio::task::spawn_blocking(move || drop(server)).await.unwrap();
        report
    })
}

fn queue_name(queue: &Queue) -> &str {
    idem::Source::name(queue)
}

/// Becomes true when the worker reports that the database is unavailable.
fn watch_health(worker: &Running) -> Arc<AtomicBool> {
    let (health, down) = (worker.health.clone(), Arc::new(AtomicBool::new(false)));
    let seen = down.clone();
    tokio::spawn(async move {
        while health.database() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        seen.store(true, Relaxed);
    });
    down
}
