//! The role of a pooler's session, which a handler can change for the next message.

use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::store::{ClaimState, Claims, CommitResult, HandlerId, Identity, Transactions};
use idem_core::{Fingerprint, HasConnection, Key, Postgres};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::world::PgBouncerWorld;

pub(crate) type Txn = <Postgres as Transactions>::Txn;

pub(crate) fn lend(txn: &mut Txn) -> &mut PgConnection {
    <Postgres as HasConnection<PgConnection>>::connection(txn)
}

/// A transaction with a claim whose handler runs this.
pub(crate) async fn run(store: &Postgres, handler: HandlerId, key: &str, sql: &str) -> Txn {
    let identity = Identity { handler, key: Key::of(key).unwrap(), fingerprint: Fingerprint::none() };
    let handler_timeout = Duration::from_secs(5);
    let (mut txn, _) = store.begin_with_claim(handler_timeout, &identity, ClaimState::Processed).await.unwrap();
    <PgBouncerWorld>::execute(lend(&mut txn), sql).await.unwrap();
    txn
}

/// The role that the next message has.
pub(crate) async fn next_role(store: &Postgres) -> String {
    let mut txn = store.begin(Duration::from_secs(5)).await.unwrap();
    let asked = "SELECT CASE WHEN session_user <> 'pg_monitor' THEN current_user::text ELSE 'of pg_monitor' END";
    let role = sqlx::query_scalar(asked).fetch_one(lend(&mut txn)).await.unwrap();
    store.rollback(txn).await.unwrap();
    role
}

/// The database of a message whose handler changes the role of its session, in a pooler whose sessions have this role.
struct Roles {
    world: PgBouncerWorld,
    store: Postgres,
    handler: HandlerId,
    /// The role that the pooler has set.
    set: String,
}

impl Roles {
    async fn make() -> Option<Self> {
        let world = <PgBouncerWorld>::make().await?;
        let set = format!("idem_role_{}", Uuid::new_v4().simple());
        world.run(&format!("CREATE ROLE {set} SUPERUSER")).await;
        // As `connect_query` does, or another client.
        world.session(&format!("SELECT count(set_config('role', '{set}', false))")).await;
        let store = world.store(Setup::default()).await.unwrap();
        let handler = store.register("billing", &["paid"]).await.unwrap()[0];
        Some(Self { world, store, handler, set })
    }

    /// A transaction of this store whose handler runs this.
    async fn run(&self, store: &Postgres, key: &str, sql: &str) -> Txn {
        run(store, self.handler, key, sql).await
    }

    /// Whether the next message has the role that the pooler has set.
    async fn are_kept(&self) -> bool {
        next_role(&self.store).await == self.set
    }

    async fn end(self) {
        self.world.run(&format!("DROP OWNED BY {0}; DROP ROLE {0}", self.set)).await;
    }
}

/// How a handler can change the role of its session.
const LEAVES: [&str; 4] =
    ["SET ROLE pg_monitor", "RESET ROLE", "SET SESSION AUTHORIZATION pg_monitor", "SET LOCAL ROLE pg_monitor"];

#[tokio::test]
async fn each_message_has_the_role_that_the_pooler_has_set() {
    let Some(roles) = Roles::make().await else { return };
    for (round, sql) in LEAVES.into_iter().enumerate() {
        let done = roles.run(&roles.store, &format!("{round}"), sql).await;
        assert!(matches!(roles.store.commit(done).await, CommitResult::Done), "{sql}");
        assert!(roles.are_kept().await, "{sql}");
        let failed = roles.run(&roles.store, &format!("{round} fails"), sql).await;
        roles.store.rollback(failed).await.unwrap();
        assert!(roles.are_kept().await, "{sql}; ROLLBACK");
    }
    roles.end().await;
}

/// Nobody else uses this pooler, so it lends the session of the handler again.
#[tokio::test]
async fn a_role_that_a_handler_sets_behind_its_rollback_does_not_reach_the_next_message() {
    let Some(roles) = Roles::make().await else { return };
    for (round, end) in ["ROLLBACK", "COMMIT"].into_iter().enumerate() {
        let ended = roles.run(&roles.store, &format!("{round}"), &format!("{end}; SET ROLE pg_monitor")).await;
        roles.store.commit(ended).await;
        assert!(roles.are_kept().await, "{end}");
    }
    roles.end().await;
}

/// In a batch nothing is committed then, and the messages run singly.
#[tokio::test]
async fn a_role_that_a_handler_of_a_batch_sets_does_not_reach_the_next_message() {
    let Some(roles) = Roles::make().await else { return };
    let mut txn = roles.run(&roles.store, "a", "SET ROLE pg_monitor").await;
    roles.store.check_between(&mut txn).await.unwrap();
    assert!(matches!(roles.store.commit(txn).await, CommitResult::Refused(_)));
    assert!(roles.are_kept().await);
    roles.end().await;
}

#[tokio::test]
async fn a_reset_between_the_messages_of_a_batch_keeps_the_role_that_the_pooler_has_set() {
    let Some(roles) = Roles::make().await else { return };
    let store = roles.world.options(Setup::default()).reset_between_messages().connect().await.unwrap();
    let mut txn = roles.run(&store, "a", "SET ROLE pg_monitor").await;
    store.check_between(&mut txn).await.unwrap();
    let role: String = sqlx::query_scalar("SELECT current_user::text").fetch_one(lend(&mut txn)).await.unwrap();
    assert_eq!(role, roles.set);
    assert!(matches!(store.commit(txn).await, CommitResult::Done));
    assert!(roles.are_kept().await);
    roles.end().await;
}
