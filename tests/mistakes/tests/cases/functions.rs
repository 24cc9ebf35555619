use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

// case: function_generic
#[idempotent(key = id)]
async fn handler<T>(_: Event, _: State<T>, _: &mut PgConnection) -> Result<(), BoxError> {
//~              ^ a handler has no type parameters: name the types
    Ok(())
}

// case: function_not_async
    #[idempotent(key = id)]
    fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~ ^^ a handler is async: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`
        Ok(())
    }

// case: function_unsafe
#[idempotent(key = id)]
async unsafe fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~   ^^^^^^ a handler must not be `unsafe`: the worker calls it, and cannot ensure what an `unsafe` function requires of its caller. Remove `unsafe`
    Ok(())
}

// case: function_with_self
struct Handlers;

impl Handlers {
    #[idempotent(key = id)]
    async fn handler(&self, event: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~                  ^^^^^ a handler is a free function: move it out of the `impl` block, and take `State<T>` for `self`
        Ok(())
    }
}

// case: function_without_a_result
#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) {
//~      ^^^^^^^ a handler says whether it failed: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`
    drop(());
}

// case: function_without_parameters
#[idempotent(key = id)]
async fn handler() -> Result<(), BoxError> {
//~             ^^ a handler takes a message: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`
    Ok(())
}

// case: future_not_send
use std::rc::Rc;

    #[idempotent(key = id)]
//~ ^^^^^^^^^^^^^^^^^^^^^^^ future cannot be sent between threads safely
    async fn handler(event: Event, tx: &mut PgConnection) -> Result<(), BoxError> {
        let shared = Rc::new(event.id);
        sqlx::query("SELECT 1").execute(tx).await?;
        drop(shared);
        Ok(())
    }

// case: handler_never_registered
#[deny(dead_code)]
mod unused {
    use super::*;

    #[idempotent(key = id)]
    async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~          ^^^^^^^ dead_code
        Ok(())
    }
}

// case: on_a_struct
    #[idempotent(key = id)]
//~ ^^^^^^^^^^^^^^^^^^^^^^^ `#[idempotent]` goes on an `async fn`
    struct Handler {
        id: u64,
    }

// case: result_not_a_result
#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> u32 {
//~                                                 ^^^ a handler cannot return `u32`
//~ label: not `Result<(), E>` with an error that idem can keep
//~ note: return `Result<(), E>`, where `E` is an error that is `Send + Sync + 'static`, a `String`, or an `anyhow::Error`; what the handler has to say goes into the database, not into the `Ok`
    7
}

// case: result_with_a_value
#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<u64, BoxError> {
//~                                                 ^^^^^^ a handler cannot return `Result<u64, Box<dyn std::error::Error + Send + Sync>>`
//~ label: not `Result<(), E>` with an error that idem can keep
//~ note: return `Result<(), E>`, where `E` is an error that is `Send + Sync + 'static`, a `String`, or an `anyhow::Error`; what the handler has to say goes into the database, not into the `Ok`
    Ok(7)
}

// case: result_with_an_error_that_is_none
#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), u32> {
//~                                                 ^^^^^^ a handler cannot return `Result<(), u32>`
//~ label: not `Result<(), E>` with an error that idem can keep
//~ note: return `Result<(), E>`, where `E` is an error that is `Send + Sync + 'static`, a `String`, or an `anyhow::Error`; what the handler has to say goes into the database, not into the `Ok`
    Ok(())
}

// case: several_mistakes
    #[idempotent(key = "", name = "", colour = "red")]
//~                    ^^ this is empty; expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
//~                               ^^ this is empty; expected the stored name of the handler as a string: `name = "order_paid"`
//~                                   ^^^^^^ unknown argument `colour`; expected `key = ..`, `name = ".."`, `formerly = ".."`, `event = ".."`, `call = ..`, `natural`, `best_effort`, `zero_key`, `fingerprint = ..` or `crate = ..`
    fn handler(_: &Event, _: &str, _: PgConnection) {
//~ ^^ a handler is async: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`
//~    ^^^^^^^ a handler says whether it failed: `async fn handler(message: M, tx: &mut PgConnection) -> Result<(), E>`
//~           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a handler writes through the transaction of its claim: take `tx: &mut PgConnection`, or `tx: &mut SqliteConnection` (written out, without an alias for the reference)
//~               ^ the message cannot be a reference: take it by value
        drop(());
    }
