use idem::Source;
use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

// case: connection_behind_an_alias
type Tx<'a> = &'a mut PgConnection;

#[idempotent(key = id)]
async fn handler(_: Event, _: Tx<'_>) -> Result<(), BoxError> {
//~             ^^^^^^^^^^^^^^^^^^^^^ a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or `tx: &mut SqliteConnection` (written out, without an alias for the reference)
    Ok(())
}

// case: connection_by_value
#[idempotent(key = id)]
async fn handler(_: Event, _: PgConnection) -> Result<(), BoxError> {
//~             ^^^^^^^^^^^^^^^^^^^^^^^^^^^ a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or `tx: &mut SqliteConnection` (written out, without an alias for the reference)
    Ok(())
}

// case: connection_first
#[idempotent(key = id)]
async fn handler(_: &mut PgConnection, _: Event) -> Result<(), BoxError> {
//~                 ^^^^^^^^^^^^^^^^^ the first parameter is the message, and the connection comes behind it: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`
    Ok(())
}

// case: connection_missing
#[idempotent(key = id)]
async fn handler(_: Event) -> Result<(), BoxError> {
//~             ^^^^^^^^^^ a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or `tx: &mut SqliteConnection` (written out, without an alias for the reference)
    Ok(())
}

// case: connection_of_another_sqlx
/// Stands in for sqlx 0.8 beside the 0.9 of idem: its types have the same names and are others.
mod old_sqlx {
    pub struct PgConnection;
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut old_sqlx::PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ this handler takes `&mut old_sqlx::PgConnection`, which the store `idem::Postgres` does not have
//~ note: `Postgres` has `&mut sqlx::PgConnection` of sqlx 0.9, `Sqlite` has `&mut sqlx::SqliteConnection`, `Redis` has `&mut RedisWrites`, `DynamoDb` has `&mut DynamoWrites`; a key-value store also has handlers with `best_effort`, which take no connection, as `&mut BestEffort`
}

// case: connection_twice
#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection, _: &mut PgConnection) -> Result<(), BoxError> {
//~                                                 ^^^^^^^^^^^^^^^^^ a handler has one `&mut`, the connection; take other things by value, as `State<T>`
    Ok(())
}

// case: best_effort_on_a_store
#[idempotent(key = id, best_effort)]
async fn handler(_: Event) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ this handler takes `&mut BestEffort`, which the store `idem::Postgres` does not have
//~ note: `Postgres` has `&mut sqlx::PgConnection` of sqlx 0.9, `Sqlite` has `&mut sqlx::SqliteConnection`, `Redis` has `&mut RedisWrites`, `DynamoDb` has `&mut DynamoWrites`; a key-value store also has handlers with `best_effort`, which take no connection, as `&mut BestEffort`
}

// case: best_effort_with_a_connection
#[idempotent(key = id, best_effort)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~                           ^^^^^^^^^^^^^^^^^ a handler with `best_effort` takes no connection: its effect is in another system, and may be repeated after a crash or a failed attempt. Remove the parameter, or remove `best_effort`, and the writes are applied once
    Ok(())
}

// case: best_effort_and_natural
#[idempotent(key = id, best_effort, natural)]
//~                    ^^^^^^^^^^^ a `natural` handler needs no deduplication, and `best_effort` asks for one: remove one of them
async fn handler(_: Event) -> Result<(), BoxError> {
    Ok(())
}

// case: best_effort_with_a_value
#[idempotent(key = id, best_effort = true)]
//~                    ^^^^^^^^^^^ `best_effort` has no value: write `best_effort`, or leave it out
async fn handler(_: Event) -> Result<(), BoxError> {
    Ok(())
}

// case: connection_of_a_store_on_a_key_value_store
use idem::key_value::{KeyValue, Memory};

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: KeyValue<Memory>, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ this handler takes `&mut PgConnection`, which the store `KeyValue<idem::key_value::Memory>` does not have
//~ note: `Postgres` has `&mut sqlx::PgConnection` of sqlx 0.9, `Sqlite` has `&mut sqlx::SqliteConnection`, `Redis` has `&mut RedisWrites`, `DynamoDb` has `&mut DynamoWrites`; a key-value store also has handlers with `best_effort`, which take no connection, as `&mut BestEffort`
}
