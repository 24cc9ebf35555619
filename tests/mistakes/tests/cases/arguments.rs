use idem::prelude::*;
use sqlx::PgConnection;

struct Event {
    id: u64,
}

// case: argument_misspelled
#[idempotent(keys = "id")]
//~          ^^^^ unknown argument `keys`; expected `key = ..`, `name = ".."`, `formerly = ".."`, `event = ".."`, `call = ..`, `natural`, `best_effort`, `zero_key`, `fingerprint = ..` or `crate = ..`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: argument_twice
#[idempotent(key = id, key = "id")]
//~                    ^^^ `key` is given twice; keep one
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: argument_unknown
#[idempotent(key = id, exactly_once)]
//~                    ^^^^^^^^^^^^ unknown argument `exactly_once`; expected `key = ..`, `name = ".."`, `formerly = ".."`, `event = ".."`, `call = ..`, `natural`, `best_effort`, `zero_key`, `fingerprint = ..` or `crate = ..`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: argument_with_parentheses
#[idempotent(key("id"))]
//~          ^^^ expected `key = ..`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: argument_without_value
#[idempotent(key)]
//~          ^^^ expected `key = ..`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: arguments_without_a_comma
#[idempotent(key = id name = "handler")]
//~                   ^^^^ expected `,`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: attribute_with_a_bare_string
#[idempotent("id")]
//~          ^^^^ expected `key = ..`, `name = ".."`, `formerly = ".."`, `event = ".."`, `call = ..`, `natural`, `best_effort`, `zero_key`, `fingerprint = ..` or `crate = ..`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: attribute_without_arguments
    #[idempotent]
//~ ^^^^^^^^^^^^^ a handler needs the key of its messages: `#[idempotent(key = "event_id")]`
    async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
        Ok(())
    }

// case: attribute_without_key
    #[idempotent(name = "handler")]
//~ ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a handler needs the key of its messages: `#[idempotent(key = "event_id")]`
    async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
        Ok(())
    }

// case: event_empty
#[idempotent(key = id, event = "")]
//~                            ^^ this is empty; expected the type of event as a string: `event = "order.paid"`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: name_empty
#[idempotent(key = id, name = "")]
//~                           ^^ this is empty; expected the stored name of the handler as a string: `name = "order_paid"`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: name_not_a_string
#[idempotent(key = id, name = handler)]
//~                           ^^^^^^^ expected the stored name of the handler as a string: `name = "order_paid"`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: name_of_the_function_too_long
#[idempotent(key = id)]
async fn nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
//~      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the name is stored, in at most 200 bytes: give a shorter one with `name = ".."`
    Ok(())
}

// case: name_too_long
#[idempotent(key = id, name = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn")]
//~                           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ the name has 201 bytes; at most 200 are possible
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: name_with_a_control_character
#[idempotent(key = id, name = "a\0b")]
//~                           ^^^^^^ a name has no control characters: it is stored as text, and shown
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: natural_twice
#[idempotent(key = id, natural, natural)]
//~                             ^^^^^^^ `natural` is given twice; keep one
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: natural_with_a_value
#[idempotent(key = id, natural = true)]
//~                    ^^^^^^^ `natural` has no value: write `natural`, or leave it out
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: natural_without_a_key
    #[idempotent(natural)]
//~ ^^^^^^^^^^^^^^^^^^^^^^ a handler needs the key of its messages: `#[idempotent(key = "event_id")]`
    async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
        Ok(())
    }

// case: formerly_not_a_string
#[idempotent(key = id, formerly = handler)]
//~                               ^^^^^^^ expected the name that the handler had before: `formerly = "order_paid"`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: zero_key_with_a_value
#[idempotent(key = id, zero_key = true)]
//~                    ^^^^^^^^ `zero_key` has no value: write `zero_key`, or leave it out
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}
