//! Handlers of a batch that end its transaction behind the pooler, which may then lend another session to the next one.

use idem_conformance::store::{Setup, World};
use idem_core::Postgres;

use crate::careless::{one_begins_another_transaction_with, one_makes_its_session_writable};
use crate::world::PgBouncerWorld;

/// The sessions of this pooler are read-only at first.
async fn world() -> Option<(PgBouncerWorld, Postgres)> {
    let world = <PgBouncerWorld>::make().await?;
    let store = world.store(Setup::default()).await.unwrap();
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
