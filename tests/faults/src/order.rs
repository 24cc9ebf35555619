//! One handler that does what its message says.

use std::time::Duration;

use idem::{BoxError, Delivery, State, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, Executor, PgConnection};

use crate::Stage;

/// A message.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Its key.
    pub id: String,
    /// The action of the handler.
    pub act: Act,
}

impl Order {
    /// A message with this key.
    pub fn new(id: impl Into<String>, act: Act) -> Self {
        Self { id: id.into(), act }
    }
}

/// The action of the handler after it has written its effect.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Act {
    /// Nothing more.
    Write,
    /// Takes this many milliseconds, then runs a query.
    Take(u64),
    /// Waits until the stage opens.
    Hold,
    /// Fails the first runs, this many times.
    Fail(u32),
    /// Fails each time, after this many milliseconds.
    FailAfter(u64),
    /// Fails until the stage opens.
    FailUntilOpen,
    /// Never ends.
    Hang,
    /// Ends the process after this many milliseconds.
    Abort(u64),
    /// Ends its own connection, and returns the error.
    Break,
    /// Writes through one of the application's connections.
    SecondConnection,
    /// Sets a lock timeout and waits for a row that the test has locked.
    LockTimeout,
}

/// Writes its effect, then does what the message says.
#[idempotent(key = "id", name = "act")]
pub async fn act(order: Order, stage: State<Stage>, delivery: Delivery, tx: &mut PgConnection) -> Result<(), BoxError> {
    let (stage, id, attempt) = (stage.0, order.id.as_str(), delivery.attempt());
    stage.enter(id, attempt);
    stage.effect(id, attempt, tx).await?;
    match order.act {
        Act::Write => {}
        Act::Take(millis) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            tx.execute("SELECT 1").await?;
        }
        Act::Hold => stage.opened().await,
        Act::Fail(times) if attempt <= times => return Err(format!("attempt {attempt} fails").into()),
        Act::FailAfter(millis) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            return Err(format!("attempt {attempt} fails").into());
        }
        Act::FailUntilOpen if !stage.is_open() => return Err("the cause is still there".into()),
        Act::Fail(_) | Act::FailUntilOpen => {}
        Act::Hang => std::future::pending().await,
        Act::Abort(millis) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            std::process::abort();
        }
        Act::Break => {
            tx.execute("SELECT pg_terminate_backend(pg_backend_pid())").await?;
        }
        Act::SecondConnection => {
            let mut second = PgConnection::connect(stage.url()).await?;
            stage.effect(&format!("{id} by another connection"), attempt, &mut second).await?;
            second.close().await?;
        }
        Act::LockTimeout => {
            tx.execute("SET LOCAL lock_timeout = '50ms'").await?;
            tx.execute(stage.sql("UPDATE {schema}.business SET n = n + 1")).await?;
        }
    }
    Ok(())
}
