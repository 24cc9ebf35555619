use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

// case: batch_with_headers
#[idempotent(key = "id")]
async fn handler(_: Batch<Event>, _: Headers, _: &mut PgConnection) -> Result<(), BoxError> {
//~                                  ^^^^^^^ a batch has many deliveries: take what you need of each into its message, and `State<T>` beside it
    Ok(())
}

// case: extractor_by_reference
#[idempotent(key = id)]
async fn handler(_: Event, _: &Headers, _: &mut PgConnection) -> Result<(), BoxError> {
//~                           ^ an extractor cannot be a reference: take it by value
    Ok(())
}

// case: extractor_unknown
struct Tenant;

#[idempotent(key = id)]
async fn handler(_: Event, _: Headers, _: Tenant, _: &mut PgConnection) -> Result<(), BoxError> {
//~             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a handler cannot take `Tenant`
//~ label: not an extractor
//~ note: the first parameter is the message, the one `&mut` is the connection, and the others are extractors: `State<T>`, `Headers`, `Subject`, `PartitionKey`, `CloudEvent`, `Delivery`, `IdempotencyKey`, `Outbox`; with `call = ..` also `Called<T>` and `OutboundKey`
    Ok(())
}

// case: extractors_too_many
#[idempotent(key = id)]
async fn handler(
    _: Event,
    _: &mut PgConnection,
    _: Headers,
    _: Headers,
    _: Headers,
    _: Headers,
    _: Headers,
    _: Headers,
    _: Headers,
//~    ^^^^^^^ a handler has at most 6 extractors; take one `State<T>` with more in it
) -> Result<(), BoxError> {
    Ok(())
}

// case: fingerprint_of_another_type
fn length(of: &Delivery) -> usize {
    of.payload().len()
}

#[idempotent(key = id, fingerprint = length)]
//~                                  ^^^^^^ E0308
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: message_by_reference
#[idempotent(key = id)]
async fn handler(_: &Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~                 ^ the message cannot be a reference: take it by value
    Ok(())
}

// case: message_impl_trait
#[idempotent(key = id)]
async fn handler(_: impl Send, _: &mut PgConnection) -> Result<(), BoxError> {
//~                 ^^^^ the message cannot be `impl Trait`: name the type
    Ok(())
}
