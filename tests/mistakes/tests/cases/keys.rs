use idem::prelude::*;
use sqlx::PgConnection;

// case: key_composite_in_a_composite
struct Event {
    id: u64,
}

#[idempotent(key = (id, (id, id)))]
//~                     ^ expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_composite_of_one
struct Event {
    id: u64,
}

#[idempotent(key = (id))]
//~                ^^^^ a composite key has at least two parts: `key = (order_id, version)`; one part needs no parentheses
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_empty
struct Event {
    id: u64,
}

#[idempotent(key = "")]
//~                ^^ this is empty; expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_header_without_a_name
struct Event {
    id: u64,
}

#[idempotent(key = header(ce_id))]
//~                       ^^^^^ expected the name of the header as a string: `header("ce-id")`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_header_written_as_a_field
struct Event {
    id: u64,
}

#[idempotent(key = "ce-id")]
//~                ^^^^^^^ no field is called `ce-id`; for a header write `header("ce-id")`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_no_such_field
struct Event {
    event_id: u64,
}

#[idempotent(key = "event_i")]
//~                ^^^^^^^^^ E0609
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_no_such_field_bare
struct Event {
    event_id: u64,
}

#[idempotent(key = event_i)]
//~                ^^^^^^^ E0609
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_not_of_any_kind
struct Event {
    id: u64,
}

#[idempotent(key = 5)]
//~                ^ expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_of_an_enum
enum Event {
    Paid { id: u64 },
}

#[idempotent(key = "id")]
//~                ^^^^ E0609
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_of_an_unknown_kind
struct Event {
    id: u64,
}

#[idempotent(key = headers("ce-id"))]
//~                ^^^^^^^ `headers(..)` is no key; expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_private_field
mod events {
    pub struct Event {
        id: u64,
    }
}
use events::Event;

#[idempotent(key = "id")]
//~                ^^^^ E0616
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_through_an_option
struct Order {
    id: u64,
}

struct Event {
    order: Option<Order>,
}

#[idempotent(key = "order.id")]
//~                ^^^^^^^^^^ E0609
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}
