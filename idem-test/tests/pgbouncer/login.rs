//! Settings that are made in a session after its login, by a pooler that lends it for as long as a client is connected.
//! `RESET ALL`, which ends each message, does not return to them.

use std::time::Duration;

use idem_core::Postgres;
use idem_core::store::{CommitResult, Transactions};
use idem_test::conformance::store::Setup;

use crate::role::{Txn, lend};
use crate::world::PgBouncerWorld;

const TIMEOUT: Duration = Duration::from_secs(20);

/// A store that has one connection for handlers, through such a pooler.
async fn behind(connect_query: &str) -> Option<(PgBouncerWorld<true>, Postgres)> {
    let world = PgBouncerWorld::of_sessions(connect_query).await?;
    let store = world.undeclared(Setup { connections: Some(2), ..Setup::default() }).connect().await.unwrap();
    Some((world, store))
}

async fn shown(txn: &mut Txn, setting: &str) -> String {
    let asked = sqlx::query_scalar("SELECT current_setting($1)").bind(setting);
    asked.fetch_one(lend(txn)).await.unwrap()
}

#[tokio::test]
async fn a_natural_handler_keeps_a_lock_timeout_that_a_reset_takes_from_its_session() {
    let Some((_world, store)) = behind("SET lock_timeout = 7000").await else { return };
    for round in 0..3 {
        let mut natural = store.begin_guarded(TIMEOUT).await.unwrap();
        assert_eq!(shown(&mut natural, "lock_timeout").await, "7s", "message {round}");
        assert!(matches!(store.commit(natural).await, CommitResult::Done));
    }
}
