//! The function is called with its declared parameters, and stays callable itself.

use std::fmt;

use idem::prelude::*;
use sqlx::{Connection, SqliteConnection};

#[derive(Clone)]
struct Event {
    id: u64,
}

#[derive(Debug)]
struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {}

#[idempotent(key = id)]
async fn writes(Event { id }: Event, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("CREATE TABLE seen AS SELECT ? AS id").bind(id.cast_signed()).execute(tx).await?;
    Ok(())
}

#[idempotent(key = id)]
async fn refuses(_: Event, _: &mut SqliteConnection) -> Result<(), Refused> {
    Err(Refused)
}

/// The connection is in the middle, with extractors on both sides.
#[idempotent(key = id)]
async fn takes_all(
    event: Event,
    State(limit): State<u64>,
    headers: Headers,
    tx: &mut SqliteConnection,
    key: IdempotencyKey,
    delivery: Delivery,
) -> Result<(), String> {
    sqlx::query("SELECT 1").execute(tx).await.map_err(|error| error.to_string())?;
    let tenant = headers.get_str("tenant").unwrap_or_default();
    Err(format!("{} {limit} {tenant} {} {}", event.id, key.0, delivery.source()))
}

type Sqlite = SqliteConnection;

/// Lifetime parameters of the function are accepted.
#[allow(single_use_lifetimes, clippy::needless_lifetimes)]
#[idempotent(key = id)]
async fn borrows<'a>(_: Event, _: &'a mut Sqlite) -> Result<(), BoxError> {
    Ok(())
}

/// The lifetime is in the type of the connection.
#[idempotent(key = id)]
async fn takes_a_transaction(_: Event, _: &mut sqlx::Transaction<'_, sqlx::Sqlite>) -> Result<(), BoxError> {
    Ok(())
}

async fn connection() -> Result<SqliteConnection, sqlx::Error> {
    SqliteConnection::connect("sqlite::memory:").await
}

fn connection_of<H: Handler>() -> &'static str {
    std::any::type_name::<H::Connection>()
}

#[tokio::test]
async fn the_function_runs_on_the_connection_it_is_lent() -> Result<(), BoxError> {
    let mut tx = connection().await?;
    writes::handle(Event { id: 7 }, (), &mut tx).await?;
    let id: i64 = sqlx::query_scalar("SELECT id FROM seen").fetch_one(&mut tx).await?;
    assert_eq!(id, 7);
    Ok(())
}

#[tokio::test]
async fn the_function_can_be_called_as_it_is_written() -> Result<(), BoxError> {
    let mut tx = connection().await?;
    writes(Event { id: 7 }, &mut tx).await?;
    let refused: Refused = refuses(Event { id: 7 }, &mut tx).await.unwrap_err();
    assert_eq!(refused.to_string(), "refused");
    Ok(())
}

#[tokio::test]
async fn the_functions_error_is_the_handlers() -> Result<(), BoxError> {
    let mut tx = connection().await?;
    let error = refuses::handle(Event { id: 7 }, (), &mut tx).await.unwrap_err();
    assert!(error.is::<Refused>());
    Ok(())
}

#[tokio::test]
async fn extractors_arrive_in_their_positions() -> Result<(), BoxError> {
    let mut headers = Headers::new();
    headers.push("tenant", "acme");
    let key = IdempotencyKey(Key::of("k")?);
    let params = (State(9), headers, key, Delivery::new("orders", "{}"));
    let error = takes_all::handle(Event { id: 7 }, params, &mut connection().await?).await.unwrap_err();
    assert_eq!(error.to_string(), "7 9 acme k orders");
    Ok(())
}

#[tokio::test]
async fn lifetimes_of_the_call_are_no_matter() -> Result<(), BoxError> {
    borrows::handle(Event { id: 7 }, (), &mut connection().await?).await?;
    let mut tx = connection().await?;
    takes_a_transaction(Event { id: 7 }, &mut tx.begin().await?).await
}

#[test]
fn the_connection_is_the_type_behind_the_reference() {
    assert!(connection_of::<writes>().ends_with("SqliteConnection"));
    assert!(connection_of::<takes_a_transaction>().contains("Transaction"));
}
