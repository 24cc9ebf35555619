//! Other attributes, above and below.

use idem::prelude::*;
use sqlx::SqliteConnection;

#[derive(Debug)]
struct Event {
    id: u64,
}

#[idempotent(key = id)]
#[tracing::instrument]
async fn traced_inside(event: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    assert!(event.id > 0);
    Ok(())
}

#[tracing::instrument(skip_all, err)]
#[idempotent(key = id)]
async fn traced_outside(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[cfg(false)]
#[idempotent(key = nothing)]
async fn absent_above(_: Nothing, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = nothing)]
#[cfg(false)]
async fn absent_below(_: Nothing, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = nothing)]
#[cfg_attr(true, cfg(false))]
async fn absent_by_cfg_attr(_: Nothing, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = id)]
#[cfg(true)]
#[deprecated = "another one took its place"]
#[doc = "An old handler."]
async fn old(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[idempotent(key = id)]
#[expect(dead_code)]
async fn never_registered(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

#[expect(dead_code)]
#[idempotent(key = id)]
async fn never_registered_either(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

/// The user's own macro, with each kind of fragment that it can pass on.
macro_rules! handler {
    ($(#[$meta:meta])* $vis:vis $name:ident($message:ty, $tx:ty), key = $key:expr, name = $stored:literal) => {
        $(#[$meta])*
        #[idempotent(key = $key, name = $stored)]
        $vis async fn $name(_: $message, _: $tx) -> Result<(), BoxError> {
            Ok(())
        }
    };
}
handler!(
    #[cfg(true)]
    from_a_macro(Event, &mut SqliteConnection),
    key = "id",
    name = "stored"
);

macro_rules! fixed {
    () => {
        #[idempotent(key = "id")]
        async fn fixed_by_a_macro(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
            Ok(())
        }
    };
}
fixed!();

#[test]
fn a_handler_may_carry_other_attributes() {
    assert_eq!(traced_inside::NAME, "traced_inside");
    assert_eq!(traced_outside::NAME, "traced_outside");
    assert_eq!(old::NAME, "old");
}

#[test]
fn a_users_macro_can_write_handlers() -> Result<(), idem::handler::KeyError> {
    assert_eq!(from_a_macro::NAME, "stored");
    let delivery = Delivery::new("orders", "{}");
    assert_eq!(from_a_macro::key(&Event { id: 7 }, &delivery)?.as_bytes(), b"7");
    assert_eq!(fixed_by_a_macro::key(&Event { id: 7 }, &delivery)?.as_bytes(), b"7");
    Ok(())
}
