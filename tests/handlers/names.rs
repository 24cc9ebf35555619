//! The stored identity, the event, and where a handler can be declared.

use idem::prelude::*;
use sqlx::SqliteConnection;

type Done = Result<(), BoxError>;

pub(crate) struct Event {
    id: u64,
}

#[idempotent(key = id)]
async fn plain(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

#[idempotent(key = id)]
async fn r#match(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

#[idempotent(name = "order_paid", event = "order.paid", key = "id")]
async fn renamed(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

mod inner {
    use super::{BoxError, Event, SqliteConnection, idempotent};

    #[idempotent(key = id)]
    pub(crate) async fn public(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
        Ok(())
    }

    #[idempotent(key = id)]
    pub(super) async fn restricted(_: Event, _: &mut SqliteConnection) -> Result<(), BoxError> {
        Ok(())
    }
}

use inner::public as other_name;
pub(crate) use inner::public;
use inner::restricted;

#[idempotent(key = id, crate = ::idem)]
async fn with_a_path(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

mod reexported {
    pub(super) use ::idem as again;
}

#[idempotent(crate = reexported::again, key = id)]
async fn with_the_path_of_a_reexport(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

#[test]
fn the_name_is_the_functions_without_its_module() {
    assert_eq!(plain::NAME, "plain");
    assert_eq!(r#match::NAME, "match");
    assert_eq!(public::NAME, "public");
    assert_eq!(other_name::NAME, "public");
    assert_eq!(restricted::NAME, "restricted");
}

#[idempotent(name = "settle", formerly = "mark_paid", key = "id")]
async fn settle(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

#[idempotent(formerly = ["mark_paid", "settle"], key = "id")]
async fn close(_: Event, _: &mut SqliteConnection) -> Done {
    Ok(())
}

#[test]
fn former_names_are_kept() {
    assert_eq!((settle::NAME, settle::FORMERLY), ("settle", &["mark_paid"][..]));
    assert_eq!((close::NAME, close::FORMERLY), ("close", &["mark_paid", "settle"][..]));
    assert!(plain::FORMERLY.is_empty());
}

#[test]
fn a_given_name_and_event_are_kept() {
    assert_eq!(renamed::NAME, "order_paid");
    assert_eq!(renamed::EVENT, Some("order.paid"));
    assert_eq!(plain::EVENT, None);
}

#[test]
fn a_handler_can_be_local_to_a_function() {
    #[idempotent(key = id)]
    async fn local(_: Event, _: &mut SqliteConnection) -> Done {
        Ok(())
    }
    assert_eq!(local::NAME, "local");
}

#[test]
fn the_crate_can_have_another_path() {
    assert_eq!(with_a_path::NAME, "with_a_path");
    assert_eq!(with_the_path_of_a_reexport::NAME, "with_the_path_of_a_reexport");
}
