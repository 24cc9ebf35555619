use idem::Source;
use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

// case: register_after_a_mistake_in_the_attribute
#[idempotent(key = "")]
//~                ^^ this is empty; expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
}

// case: register_after_a_mistake_in_the_header
#[idempotent(key = id)]
async fn handler<T>(_: Event, _: Option<T>) -> Result<(), BoxError> {
//~              ^ a handler has no type parameters: name the types
//~                ^^^^^^^^^^^^^^^^^^^^^^^^ a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or `tx: &mut SqliteConnection` (written out, without an alias for the reference)
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
}

// case: register_for_another_database
use sqlx::SqliteConnection;

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ this handler takes `&mut SqliteConnection`, which the store `idem::Postgres` does not have
//~ note: `Postgres` has `&mut sqlx::PgConnection` of sqlx 0.9, `Sqlite` has `&mut sqlx::SqliteConnection`, `Redis` has `&mut RedisWrites`, `DynamoDb` has `&mut DynamoWrites`; a key-value store also has handlers with `best_effort`, which take no connection, as `&mut BestEffort`
}

// case: register_with_a_transaction
use sqlx::Transaction;

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut Transaction<'_, sqlx::Postgres>) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ this handler takes `&mut Transaction<'static, sqlx::Postgres>`, which the store `idem::Postgres` does not have
//~ note: `Postgres` has `&mut sqlx::PgConnection` of sqlx 0.9, `Sqlite` has `&mut sqlx::SqliteConnection`, `Redis` has `&mut RedisWrites`, `DynamoDb` has `&mut DynamoWrites`; a key-value store also has handlers with `best_effort`, which take no connection, as `&mut BestEffort`
}

// case: register_without_the_attribute
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                                         ^^^^^^^ E0747
}

// case: register_without_the_state_of_its_call
#[derive(Clone)]
struct Bank;

#[external(key_life = "24h")]
async fn charge(_: &Event, _: OutboundKey, _: State<Bank>) -> Result<u64, CallError> {
    Ok(7)
}

#[idempotent(key = id, call = charge)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ a handler takes `State<Bank>`, which the worker's state `()` does not give
//~ note: give the worker its state before its handlers, with `.state(..)`, or implement `FromRef<()>` for `Bank`
}

// case: register_without_the_state_that_is_taken
#[derive(Clone)]
struct Config;

#[idempotent(key = id)]
async fn handler(_: Event, _: State<Config>, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~                                               ^^^^^^^ a handler takes `State<Config>`, which the worker's state `()` does not give
//~ note: give the worker its state before its handlers, with `.state(..)`, or implement `FromRef<()>` for `Config`
}

// case: run_together_without_handlers
async fn run(store: Postgres, source: impl Source) -> Result<(), BoxError> {
    let worker = Worker::new("billing", store, source);
    Workers::new().add(worker).run_until(idem::shutdown_signal()).await?;
//~                    ^^^^^^ this worker has no handlers
//~ label: a worker without handlers cannot run
//~ note: add one first: `.handler::<your_handler>()`, where `your_handler` is a function with `#[idempotent(..)]`
    Ok(())
}

// case: run_without_handlers
async fn run(store: Postgres, source: impl Source) -> Result<(), BoxError> {
    Worker::new("billing", store, source).concurrency(4).run_until(idem::shutdown_signal()).await?;
//~ ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ this worker has no handlers
//~ label: a worker without handlers cannot run
//~ note: add one first: `.handler::<your_handler>()`, where `your_handler` is a function with `#[idempotent(..)]`
//~                                                      ^^^^^^^^^ this worker has no handlers
//~ label: a worker without handlers cannot run
//~ note: add one first: `.handler::<your_handler>()`, where `your_handler` is a function with `#[idempotent(..)]`
//~                                                                                         ^^^^^ this worker has no handlers
//~ label: a worker without handlers cannot run
//~ note: add one first: `.handler::<your_handler>()`, where `your_handler` is a function with `#[idempotent(..)]`
    Ok(())
}
