use idem::prelude::*;
use sqlx::PgConnection;

#[derive(serde::Deserialize)]
struct Event {
    id: u64,
}

#[external(key_life = "24h")]
async fn settle(_: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(7)
}

// case: call_of_a_batch
#[idempotent(key = id, call = settle)]
//~                           ^^^^^^ a call is made for one message: take one message instead of a `Batch`
async fn handler(_: Batch<Event>, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: call_of_a_natural_handler
#[idempotent(key = id, natural, call = settle)]
//~                    ^^^^^^^ a `natural` handler runs for each copy of a message, and would call for each: remove `natural`, or remove `call`
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: call_of_another_message
#[derive(serde::Deserialize)]
struct Other {
    id: u64,
}

#[idempotent(key = id, call = settle)]
async fn handler(_: Other, _: &mut PgConnection) -> Result<(), BoxError> {
//~             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ E0271
    Ok(())
}

// case: call_without_the_attribute
async fn charge(_: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(7)
}

#[idempotent(key = id, call = charge)]
//~                           ^^^^^^ E0747
async fn handler(_: Event, _: &mut PgConnection) -> Result<(), BoxError> {
    Ok(())
}

// case: called_of_another_type
    #[idempotent(key = id, call = settle)]
//~ ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ E0308
    async fn handler(_: Event, _: Called<String>, _: &mut PgConnection) -> Result<(), BoxError> {
        Ok(())
    }

// case: called_twice
#[idempotent(key = id, call = settle)]
async fn handler(_: Event, _: Called<u64>, _: Called<u64>, _: &mut PgConnection) -> Result<(), BoxError> {
//~                                           ^^^^^^^^^^^ a handler makes one call, so it takes one `Called`
    Ok(())
}

// case: called_without_a_call
#[idempotent(key = id)]
async fn handler(_: Event, _: Called<u64>, _: &mut PgConnection) -> Result<(), BoxError> {
//~                           ^^^^^^^^^^^ `Called` is the answer of an external call: name the call, `#[idempotent(.., call = charge)]`
    Ok(())
}

// case: external_answer_that_is_no_json
struct Charge;

#[external(at_most_once)]
async fn charge(_: &Event) -> Result<Charge, CallError> {
//~                           ^^^^^^ E0277
//~                           ^^^^^^ E0277
    Ok(Charge)
}

// case: external_argument_unknown
#[external(at_most_once, retries = 3)]
//~                      ^^^^^^^ unknown argument `retries`; expected `key_life = "24h"` or `at_most_once`, `timeout = "20s"`, `reconcile = ..`, `ask_after = "2m"`, `name = ".."` or `crate = ..`
async fn charge(event: &Event) -> Result<u64, CallError> {
    Ok(event.id)
}

// case: external_ask_after_without_reconcile
#[external(at_most_once, ask_after = "2m")]
//~                                  ^^^^ there is nobody to ask: name the function that does, `reconcile = ..`, or remove `ask_after`
async fn charge(event: &Event) -> Result<u64, CallError> {
    Ok(event.id)
}

// case: external_at_most_once_with_a_key_life
#[external(at_most_once, key_life = "24h")]
//~        ^^^^^^^^^^^^ a provider that knows no keys remembers none: remove `at_most_once`, or remove `key_life`
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

// case: external_key_life_shorter_than_the_timeout
#[external(key_life = "30s", timeout = "20s")]
//~                   ^^^^^ the provider could forget a key before a call arrives, which may take 20s, and 10s until it is sent: that must be less than nine tenths of `key_life`. Lower the timeout, or make it a call without a key, `at_most_once`
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

// case: external_key_life_without_a_key
#[derive(Clone)]
struct Bank;

#[external(key_life = "24h")]
//~                   ^^^^^ the provider recognizes a repeated call only by a key that the call sends: take `key: OutboundKey`; or make it a call without a key, `at_most_once`
async fn charge(event: &Event, _: State<Bank>) -> Result<u64, CallError> {
    Ok(event.id)
}

// case: external_key_life_without_a_unit
#[external(key_life = "24")]
//~                   ^^^^ `24` is no time; expected a time as a string: a number and one of `ms`, `s`, `m`, `h`, `d`, as in `"24h"`
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

// case: external_message_by_value
#[external(at_most_once)]
async fn charge(event: Event) -> Result<u64, CallError> {
//~                    ^^^^^ a call takes the message by reference, because it may be repeated: `message: &M`
    Ok(event.id)
}

// case: external_not_async
    #[external(at_most_once)]
    fn charge(event: &Event) -> Result<u64, CallError> {
//~ ^^ a call is async: `async fn charge(message: &M, key: OutboundKey) -> Result<T, CallError>`
        Ok(event.id)
    }

// case: external_on_a_struct
    #[external(at_most_once)]
//~ ^^^^^^^^^^^^^^^^^^^^^^^^^ `#[external]` goes on an `async fn`
    struct Charge;

// case: external_reconcile_of_another_answer
#[external(key_life = "24h", reconcile = find)]
//~                                      ^^^^ E0308
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

async fn find(_: &Event, _: OutboundKey) -> Result<Found<String>, BoxError> {
    Ok(Found::Unknown)
}

// case: external_reconcile_with_other_parameters
#[external(key_life = "24h", reconcile = find)]
//~                                      ^^^^ E0061
async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
    Ok(event.id)
}

async fn find(_: &Event) -> Result<Found<u64>, BoxError> {
    Ok(Found::Unknown)
}

// case: external_with_a_connection
#[external(at_most_once)]
async fn charge(event: &Event, _: &mut PgConnection) -> Result<u64, CallError> {
//~                               ^^^^^^^^^^^^^^^^^ a call has no transaction: write its answer in the handler that makes it
    Ok(event.id)
}

// case: external_without_a_key_life
    #[external(timeout = "20s")]
//~ ^^^^^^^^^^^^^^^^^^^^^^^^^^^^ a call needs the time for which the provider remembers a key, `#[external(key_life = "24h")]`; if it knows no keys, `#[external(at_most_once)]`
    async fn charge(event: &Event, _: OutboundKey) -> Result<u64, CallError> {
        Ok(event.id)
    }

// case: external_without_a_result
    #[external(at_most_once)]
//~ ^^^^^^^^^^^^^^^^^^^^^^^^^ a call cannot return `u64`
//~ label: not `Result<T, E>` with an error that idem can keep
//~ note: return `Result<T, CallError>`, where `T` is the answer, which is stored as JSON
    async fn charge(event: &Event) -> u64 {
//~                                   ^^^ a call cannot return `u64`
//~ label: not `Result<T, E>` with an error that idem can keep
//~ note: return `Result<T, CallError>`, where `T` is the answer, which is stored as JSON
//~                                   ^^^ a call cannot return `u64`
//~ label: not `Result<T, E>` with an error that idem can keep
//~ note: return `Result<T, CallError>`, where `T` is the answer, which is stored as JSON
        event.id
    }
