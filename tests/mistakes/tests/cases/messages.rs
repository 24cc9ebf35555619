use idem::Source;
use idem::prelude::*;
use sqlx::PgConnection;

// case: message_private_in_a_public_handler
struct Event {
    id: u64,
}

#[idempotent(key = id)]
pub async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~                     ^^^^^ E0446
    Ok(())
}

// case: message_that_borrows
struct Event<'a> {
    id: &'a str,
}

#[idempotent(key = id)]
async fn handler(_: Event<'_>, _: &mut PgConnection) -> Result<(), BoxError> {
//~                       ^^ the message cannot borrow: the worker creates it for each delivery; use an owned type
    Ok(())
}

// case: register_a_message_that_cannot_be_decoded
struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

fn register(store: Postgres, source: impl Source) {
    let _ = Worker::new("billing", store, source).handler::<handler>();
//~         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the codec `idem::codec::Json` cannot decode the message `Event`
//~ note: for JSON, the default, the message needs `#[derive(serde::Deserialize)]`
//~ note: for another format, give the worker a codec with `.codec(..)` before its handlers
}
