use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

// case: key_composite_in_a_composite
#[idempotent(key = (id, (id, id)))]
//~                     ^ expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_composite_of_one
#[idempotent(key = (id))]
//~                ^^^^ a composite key has at least two parts: `key = (order_id, version)`; one part needs no parentheses
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_empty
#[idempotent(key = "")]
//~                ^^ this is empty; expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_header_without_a_name
#[idempotent(key = header(ce_id))]
//~                       ^^^^^ expected the name of the header as a string: `header("ce-id")`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_header_written_as_a_field
#[idempotent(key = "ce-id")]
//~                ^^^^^^^ no field is called `ce-id`; for a header write `header("ce-id")`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_no_such_field
#[idempotent(key = "event_i")]
//~                ^^^^^^^^^ E0609
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_no_such_field_bare
#[idempotent(key = event_i)]
//~                ^^^^^^^ E0609
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_not_of_any_kind
#[idempotent(key = 5)]
//~                ^ expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_of_an_enum
enum Events {
    Paid { id: u64 },
}

#[idempotent(key = "id")]
//~                ^^^^ E0609
async fn handler(_: Events, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_of_an_unknown_kind
#[idempotent(key = headers("ce-id"))]
//~                ^^^^^^^ `headers(..)` is no key; expected a field (`"event_id"`, `"order.id"`), `header("..")`, `message_id`, `position`, `partition_key`, `cloud_event_id`, or a tuple of these
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_private_field
mod events {
    pub struct Sealed {
        id: u64,
    }
}
use events::Sealed;

#[idempotent(key = "id")]
//~                ^^^^ E0616
async fn handler(_: Sealed, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: key_through_an_option
struct Order {
    id: u64,
}

struct Nested {
    order: Option<Order>,
}

#[idempotent(key = "order.id")]
//~                ^^^^^^^^^^ E0609
async fn handler(_: Nested, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}
