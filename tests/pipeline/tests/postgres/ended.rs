//! Handlers of a batch that end its transaction, in a store with `.reset_between_messages()`.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use idem_conformance::store::{Setup, World};
use idem_core::Postgres;

use crate::careless::{one_begins_another_transaction_with, one_makes_its_session_writable};
use crate::world::PostgresWorld;

async fn world() -> Option<(PostgresWorld, Postgres)> {
    let world = PostgresWorld::make().await?;
    let store = world.options(&world.url, Setup::default()).reset_between_messages().connect().await.unwrap();
    Some((world, store))
}

#[tokio::test]
async fn a_handler_that_makes_its_session_writable_behind_its_rollback_harms_no_other_message() {
    let Some((world, store)) = world().await else { return };
    one_makes_its_session_writable(&world, &store).await;
}

#[tokio::test]
async fn a_handler_that_begins_another_transaction_and_one_that_commits_it_harm_no_other_message() {
    for other in ["ROLLBACK AND CHAIN", "ROLLBACK; BEGIN READ WRITE"] {
        let Some((world, store)) = world().await else { return };
        one_begins_another_transaction_with(&world, &store, other).await;
    }
}
