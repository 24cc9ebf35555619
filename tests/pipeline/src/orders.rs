//! The message of the suite, which tells its handler what to do.

use std::marker::PhantomData;
use std::time::Duration;

use idem_core::{BoxError, Delivery, Fingerprint, Handler, Key, KeyError, State, permanent, retry_after};
use serde::{Deserialize, Serialize};

use idem_conformance::store::{End, World};
use idem_test::Publication;

use super::desk::Desk;
use super::panicky::{Bomb, Extracted, Nasty, panics};

/// How long a slow handler runs.
const SLOW: Duration = Duration::from_millis(300);

/// A message: one effect named `id`, and the further actions of its handler in its first, second, .. and later runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) id: String,
    acts: Vec<Act>,
    /// The acts belong to attempts, however many runs an attempt takes: in an abandoned batch, no attempt is recorded.
    by_attempt: bool,
}

/// The action of a handler after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Act {
    Ok,
    Fail,
    /// Returns an error that panics.
    FailNasty,
    Permanent,
    /// Fails, and says that it may run again after an hour.
    RetryAfter,
    Panic,
    Hang,
    /// Hangs, and panics when dropped.
    HangBomb,
    /// Never waits and never ends.
    Spin,
    /// Waits until the test releases it.
    Wait,
    /// Swallows a SQL error.
    Swallow,
    Rollback,
    RollbackBegin,
    /// Runs ROLLBACK and BEGIN, tries to write an effect, and returns an error.
    RollbackBeginFail,
    /// Runs ROLLBACK, then writes an effect and swallows the error.
    RollbackWrite,
    /// Runs ROLLBACK, writes an effect, and returns an error.
    RollbackWriteFail,
    Commit,
    CommitBegin,
    /// Commits, then fails.
    CommitFail,
    /// Commits, then exceeds the handler timeout.
    CommitHang,
    /// Commits, then breaks its connection.
    CommitTerminateBackend,
    /// Commits, breaks its connection, and returns `Ok`.
    CommitTerminateBackendOk,
    /// Commits, then waits until the test releases it.
    CommitWait,
    /// Commits, ignores the result, and writes again.
    CommitWrite,
    /// Prepares its transaction for another session to commit, and ignores the result.
    Prepare,
    /// Does that, then fails.
    PrepareFail,
    /// Does that, then exceeds the handler timeout.
    PrepareHang,
    /// Leaves a temporary table that hides the table of effects, where that is not named with its schema.
    Hide,
    /// Checks its deferred constraints before it ends.
    Constraints,
    /// Runs a statement beyond its time limit, which the database does not cancel by itself.
    Stuck,
    /// Waits until the test releases it, then fails.
    WaitFail,
    Nested,
    /// Drops the future that begins a nested transaction.
    Unbegun,
    /// Does that, tries to write an effect, and returns the error.
    UnbegunWrite,
    LostRace,
    TerminateBackend,
    /// Breaks its connection, and returns `Ok`.
    TerminateBackendOk,
    /// Runs slowly.
    Slow,
    /// Runs slowly, and fails.
    SlowFail,
    /// Waits for two and a half seconds, and then runs a statement that lasts.
    Lasts,
    /// Writes one of the rows that others write too.
    Touch(usize),
}

impl Order {
    pub(super) fn new(id: &str, acts: &[Act]) -> Self {
        Self { id: id.to_owned(), acts: acts.to_vec(), by_attempt: false }
    }

    /// The action of the handler in this run.
    pub(super) fn does(&self, run: usize) -> Act {
        self.acts.get(run - 1).or(self.acts.last()).copied().unwrap_or(Act::Ok)
    }

    /// The action of the handler in this run of a delivery.
    pub(super) fn does_in(&self, run: usize, delivery: &Delivery) -> Act {
        self.does(if self.by_attempt { delivery.attempt() as usize } else { run })
    }

    pub(super) fn by_attempt(mut self) -> Self {
        self.by_attempt = true;
        self
    }

    pub(super) fn ok(id: &str) -> Self {
        Self::new(id, &[Act::Ok])
    }
}

impl From<Order> for Publication {
    fn from(order: Order) -> Self {
        Publication::json(&order).unwrap()
    }
}

/// The handler of the suite; with `REFUND` it takes refund events, with `RENAMED` it was `orders` before.
pub(super) struct Orders<W, const REFUND: bool = false, const RENAMED: bool = false>(PhantomData<fn() -> W>);

impl<W: World, const REFUND: bool, const RENAMED: bool> Handler for Orders<W, REFUND, RENAMED> {
    const NAME: &'static str = if REFUND { "refunds" } else { "orders" };
    const FORMERLY: &'static [&'static str] = if RENAMED { &["orders"] } else { &[] };
    const EVENT: Option<&'static str> = if REFUND { Some("Refund") } else { Some("Order") };
    const NATURAL: bool = W::NATURAL;

    type Message = Order;
    type Input = Order;
    type Params = (State<Desk>, Delivery, Extracted);
    type Connection = W::Connection;

    fn key(order: &Order, delivery: &Delivery) -> Result<Key, KeyError> {
        panics(delivery, "key");
        Key::of(&order.id)
    }

    fn fingerprint(delivery: &Delivery) -> Fingerprint {
        panics(delivery, "fingerprint");
        Fingerprint::of(delivery.payload())
    }

    async fn handle(
        order: Order,
        (State(desk), delivery, _extracted): Self::Params,
        tx: &mut W::Connection,
    ) -> Result<(), BoxError> {
        let _handling = desk.handling();
        let run = desk.run(&order.id);
        let name = if REFUND { format!("refund {}", order.id) } else { order.id.clone() };
        desk.write::<W>(&[&name], tx).await?;
        let act = order.does_in(run, &delivery);
        let nested = format!("INSERT INTO {} (name) VALUES ('nested')", desk.effects);
        match act {
            Act::Ok => {}
            Act::Fail => return Err(format!("attempt {} has failed", delivery.attempt()).into()),
            Act::FailNasty => return Err(Nasty(Bomb).into()),
            Act::Permanent => return Err(permanent("never")),
            Act::RetryAfter => return Err(retry_after(Duration::from_secs(3600), "not for an hour")),
            Act::Panic => panic!("the handler panics"),
            Act::Hang => std::future::pending().await,
            Act::HangBomb => {
                let _bomb = Bomb;
                std::future::pending().await
            }
            Act::Spin => spin().await,
            Act::Wait => desk.wait().await?,
            Act::Swallow => drop(W::execute(tx, "INSERT INTO there_is_no_such_table VALUES (1)").await),
            Act::Hide => W::execute(tx, "CREATE TEMP TABLE effects (name VARCHAR(200) NOT NULL)").await?,
            Act::Constraints => W::execute(tx, W::FEATURES.check_constraints.unwrap()).await?,
            Act::Stuck => W::execute(tx, W::FEATURES.stuck).await?,
            Act::WaitFail => {
                desk.wait().await?;
                return Err("failed when it was let go".into());
            }
            Act::Nested => {
                W::nested(tx, &nested, End::Commit).await?;
                W::nested(tx, &nested, End::Rollback).await?;
                W::nested(tx, &nested, End::Drop).await?;
            }
            Act::Unbegun => W::nested(tx, &nested, End::Unbegun).await?,
            Act::UnbegunWrite => {
                W::nested(tx, &nested, End::Unbegun).await?;
                desk.write::<W>(&[&name], tx).await?;
            }
            Act::LostRace => W::execute(tx, W::FEATURES.lost_race.unwrap()).await?,
            Act::Slow => tokio::time::sleep(SLOW).await,
            Act::SlowFail => {
                tokio::time::sleep(SLOW).await;
                return Err("failed slowly".into());
            }
            Act::Lasts => {
                tokio::time::sleep(Duration::from_millis(2500)).await;
                W::execute(tx, W::FEATURES.lasts).await?;
            }
            Act::Touch(row) => {
                let touch = format!("UPDATE {} SET name = name WHERE name = 'hot {row}'", desk.effects);
                W::execute(tx, &touch).await?;
            }
            Act::TerminateBackend => W::execute(tx, W::FEATURES.terminate_backend.unwrap()).await?,
            Act::TerminateBackendOk => drop(W::execute(tx, W::FEATURES.terminate_backend.unwrap()).await),
            ends => end::<W>(ends, &desk, &name, tx).await?,
        }
        Ok(())
    }
}

/// Reads from a channel that is closed, as a loop reads from a socket that its peer has closed. Each turn uses up what tokio
/// allows its task. It sleeps then, which leaves the core to other tests.
async fn spin() {
    let (_, mut closed) = tokio::sync::mpsc::channel::<()>(1);
    while closed.recv().await.is_none() {
        if !tokio::task::coop::has_budget_remaining() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends the transaction, which a handler must not do.
pub(super) async fn end<W: World>(act: Act, desk: &Desk, name: &str, tx: &mut W::Connection) -> Result<(), BoxError> {
    match act {
        Act::Rollback => drop(W::execute(tx, "ROLLBACK").await),
        Act::RollbackBegin => drop(W::execute(tx, "ROLLBACK; BEGIN").await),
        Act::RollbackBeginFail => {
            drop(W::execute(tx, "ROLLBACK; BEGIN").await);
            drop(desk.write::<W>(&[name], tx).await);
            return Err("failed in a transaction of its own".into());
        }
        Act::RollbackWrite | Act::RollbackWriteFail => {
            drop(W::execute(tx, "ROLLBACK").await);
            drop(desk.write::<W>(&[name], tx).await);
            if act == Act::RollbackWriteFail {
                return Err("failed behind its own ROLLBACK".into());
            }
        }
        Act::Commit => drop(W::execute(tx, "COMMIT").await),
        Act::CommitBegin => drop(W::execute(tx, "COMMIT; BEGIN").await),
        Act::CommitFail => {
            W::execute(tx, "COMMIT").await?;
            return Err("failed behind its own COMMIT".into());
        }
        Act::CommitHang => {
            let _ = W::execute(tx, "COMMIT").await;
            std::future::pending().await
        }
        Act::CommitTerminateBackend => {
            let _ = W::execute(tx, "COMMIT").await;
            W::execute(tx, W::FEATURES.terminate_backend.unwrap()).await?;
        }
        Act::CommitTerminateBackendOk => {
            let _ = W::execute(tx, "COMMIT").await;
            let _ = W::execute(tx, W::FEATURES.terminate_backend.unwrap()).await;
        }
        Act::CommitWait => {
            let _ = W::execute(tx, "COMMIT").await;
            desk.wait().await?;
        }
        Act::CommitWrite => {
            let _ = W::execute(tx, "COMMIT").await;
            desk.write::<W>(&["behind its COMMIT"], tx).await?;
        }
        Act::Prepare | Act::PrepareFail | Act::PrepareHang => {
            drop(W::execute(tx, &format!("PREPARE TRANSACTION '{}'", uuid::Uuid::new_v4())).await);
            match act {
                Act::PrepareFail => return Err("failed behind its own PREPARE".into()),
                Act::PrepareHang => std::future::pending().await,
                _ => {}
            }
        }
        act => unreachable!("{act:?} ends no transaction"),
    }
    Ok(())
}
