//! Handlers that say `natural`, and what they are tried with.

use idem_core::{BoxError, Handler, Outbox, State, permanent};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use uuid::Uuid;

use crate::handlers::Paid;

/// A version of an account's balance.
#[derive(Serialize, Deserialize)]
pub(crate) struct Balance {
    pub(crate) id: String,
    pub(crate) account: u32,
    pub(crate) version: i64,
    pub(crate) balance: i64,
}

/// What a handler that says `natural` does with the balance.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Booking {
    /// Keeps the newest version.
    Newest,
    /// Adds it to the one that is there.
    Add,
    /// Keeps the one that comes last.
    Last,
    /// Keeps the one that comes first.
    First,
    /// Refuses all.
    Never,
}

/// A handler that says `natural`.
pub(crate) struct Natural;

impl Handler for Natural {
    const NAME: &'static str = "balance";
    const NATURAL: bool = true;

    type Params = State<Booking>;

    idem_conformance::keyed_by_id!(Balance, SqliteConnection);

    async fn handle(event: Balance, State(booking): Self::Params, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        let known = match booking {
            Booking::Never => return Err(permanent("never")),
            Booking::Newest => {
                "excluded.balance, version = excluded.version WHERE balances.version <= excluded.version"
            }
            Booking::Last => "excluded.balance",
            Booking::Add => "balance + excluded.balance",
            Booking::First => "balance",
        };
        let upsert = format!(
            "INSERT INTO balances (account, version, balance) VALUES (?, ?, ?)
             ON CONFLICT (account) DO UPDATE SET balance = {known}"
        );
        let query = sqlx::query(sqlx::AssertSqlSafe(upsert)).bind(event.account).bind(event.version);
        query.bind(event.balance).execute(tx).await?;
        Ok(())
    }
}

/// Which messages a handler that says `natural` stages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Announcing {
    /// Two, for each copy.
    Always,
    /// Two, where the message has changed something.
    AtFirst,
    /// Two, and for a copy only the second one.
    LessForACopy,
    /// Two, and for a copy a third one.
    MoreForACopy,
    /// Two, under ids of their own for each copy.
    UnderNewIds,
}

/// Says `natural`, and stages messages.
pub(crate) struct Announces;

impl Handler for Announces {
    const NAME: &'static str = "announces";
    const NATURAL: bool = true;

    type Params = (State<Announcing>, Outbox);

    idem_conformance::keyed_by_id!(Paid, SqliteConnection);

    async fn handle(
        paid: Paid,
        (State(announcing), outbox): Self::Params,
        tx: &mut SqliteConnection,
    ) -> Result<(), BoxError> {
        let insert = sqlx::query("INSERT OR IGNORE INTO announced (id) VALUES (?)").bind(paid.id).execute(tx).await?;
        let is_copy = insert.rows_affected() == 0;
        if announcing == Announcing::UnderNewIds {
            for to in ["paid", "invoiced"] {
                outbox.publish(to, &paid.id)?.id(Uuid::now_v7());
            }
            return Ok(());
        }
        if !is_copy || matches!(announcing, Announcing::Always | Announcing::MoreForACopy) {
            outbox.publish("paid", &paid.id)?;
        }
        if !is_copy || announcing != Announcing::AtFirst {
            outbox.publish("invoiced", &paid.id)?;
        }
        if is_copy && announcing == Announcing::MoreForACopy {
            outbox.publish("paid again", &paid.id)?;
        }
        Ok(())
    }
}
