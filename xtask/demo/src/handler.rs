//! The handlers: ordinary ones, which write rows through the provided transaction, and the actions of careless ones.

use std::time::Duration;

use idem::prelude::*;
use idem::{BoxError, permanent};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::PgConnection;

use crate::journal::Event;
use crate::plan::{Behaviour, Order};
use crate::watched::Watch;

/// Writes the effect, then performs the action of the message's behaviour, so that a failure has something to roll back.
#[idempotent(key = "key", name = "pay")]
pub(crate) async fn pay(order: Order, watch: State<Watch>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _run = watch.0.run(order.id);
    watch.0.signals.wait().await;
    write(std::slice::from_ref(&order), tx).await?;
    act(&order, &watch.0, tx).await?;
    watch.0.returned(order.id);
    Ok(())
}

/// Does the same for a whole batch, with one statement.
#[idempotent(key = "key", name = "pay")]
pub(crate) async fn pay_many(orders: Batch<Order>, watch: State<Watch>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _runs: Vec<_> = orders.iter().map(|order| watch.0.run(order.id)).collect();
    watch.0.signals.wait().await;
    write(&orders, tx).await?;
    for order in &orders {
        act(order, &watch.0, tx).await?;
    }
    orders.iter().for_each(|order| watch.0.returned(order.id));
    Ok(())
}

/// Writes a row for each message, and updates the balance of its account.
pub(crate) async fn write(orders: &[Order], tx: &mut PgConnection) -> Result<(), BoxError> {
    let ids = orders.iter().map(|order| i64::try_from(order.id)).collect::<Result<Vec<_>, _>>()?;
    let accounts: Vec<i32> = orders.iter().map(|order| order.account).collect();
    let amounts: Vec<i64> = orders.iter().map(|order| order.amount).collect();
    sqlx::query(
        "WITH paid AS (
             INSERT INTO demo.effects (message, account, amount)
             SELECT * FROM unnest($1::bigint[], $2::int[], $3::bigint[]) RETURNING account, amount
         )
         UPDATE demo.accounts AS a SET balance = balance + paid.amount
         FROM (SELECT account, sum(amount)::bigint AS amount FROM paid GROUP BY account) AS paid
         WHERE a.account = paid.account",
    )
    .bind(ids)
    .bind(accounts)
    .bind(amounts)
    .execute(tx)
    .await?;
    Ok(())
}

/// Longer than the handler timeout.
const LONG: Duration = Duration::from_secs(3600);

/// Performs the action that the message's behaviour prescribes. Errors of statements that idem rejects are ignored, as a
/// careless handler does.
async fn act(order: &Order, watch: &Watch, tx: &mut PgConnection) -> Result<(), BoxError> {
    match order.behaviour {
        Behaviour::Works | Behaviour::Undecodable | Behaviour::Keyless => {}
        Behaviour::Flaky if watch.tries(order.id)? > 2 => {}
        Behaviour::Flaky => return Err("this one fails twice".into()),
        Behaviour::Poison => return Err("this one always fails".into()),
        Behaviour::Permanent => return Err(permanent("no attempt can fix this one")),
        Behaviour::Panic => panic(order.id),
        Behaviour::Hang => tokio::time::sleep(LONG).await,
        Behaviour::Spin => spin().await,
        Behaviour::SlowQuery => ignore(tx, "SELECT pg_sleep(3)").await,
        Behaviour::Swallow => ignore(tx, "SELECT 1/0").await,
        Behaviour::Deferred => run(tx, "INSERT INTO demo.parts (whole) VALUES (-1)").await?,
        Behaviour::Rollback => ignore(tx, "ROLLBACK").await,
        Behaviour::RollbackWrite => {
            ignore(tx, "ROLLBACK").await;
            let _ = write(std::slice::from_ref(order), tx).await;
        }
        Behaviour::RollbackFail => {
            ignore(tx, "ROLLBACK").await;
            let _ = write(std::slice::from_ref(order), tx).await;
            return Err("this one rolls back, writes and fails".into());
        }
        Behaviour::Commit => ignore(tx, "COMMIT").await,
        Behaviour::CommitWrite => {
            ignore(tx, "COMMIT").await;
            let _ = write(std::slice::from_ref(order), tx).await;
        }
        Behaviour::CommitHang => {
            ignore(tx, "COMMIT").await;
            tokio::time::sleep(LONG).await;
        }
        Behaviour::SetRole => run(tx, "SET ROLE demo_nobody").await?,
        Behaviour::Session => run(tx, session(order.id)).await?,
        Behaviour::Breaker => return Err(cut(tx).await),
        Behaviour::BreakOnce if watch.tries(order.id)? > 1 => {}
        Behaviour::BreakOnce => return Err(cut(tx).await),
        Behaviour::Killer => {
            watch.journal.note(Event::Killing, order.id);
            kill(Pid::this(), Signal::SIGKILL)?;
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

#[expect(clippy::panic, reason = "this is what a handler must not do")]
fn panic(id: u64) {
    panic!("message {id} makes its handler panic");
}

/// Reads from a channel that is closed, as a loop reads from a socket that its peer has closed.
async fn spin() {
    let (_, mut closed) = tokio::sync::mpsc::channel::<()>(1);
    while closed.recv().await.is_none() {
        // The core is left to the other processes.
        if !tokio::task::coop::has_budget_remaining() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

async fn run(tx: &mut PgConnection, sql: &'static str) -> Result<(), BoxError> {
    sqlx::raw_sql(sql).execute(tx).await?;
    Ok(())
}

async fn ignore(tx: &mut PgConnection, sql: &'static str) {
    let _ = run(tx, sql).await;
}

/// Ends the connection, and returns the resulting error.
async fn cut(tx: &mut PgConnection) -> BoxError {
    match run(tx, "SELECT pg_terminate_backend(pg_backend_pid())").await {
        Err(error) => error,
        Ok(()) => "the connection was ended".into(),
    }
}

/// Returns a statement whose effect outlives the transaction.
fn session(id: u64) -> &'static str {
    match id % 6 {
        0 => "SET default_transaction_read_only = off",
        1 => "SET search_path = nowhere",
        2 => "LISTEN demo",
        3 => "CREATE TEMPORARY TABLE effects (message bigint)",
        4 => "SELECT pg_advisory_lock_shared(1)",
        _ => "SET TIME ZONE 'Asia/Tokyo'",
    }
}
