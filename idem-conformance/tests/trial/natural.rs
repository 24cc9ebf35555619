//! The proof that a handler is natural.

use std::sync::Arc;

use idem_conformance::store::World;
use idem_core::{BoxError, Sqlite};
use idem_test::Trial;
use idem_test::harness::Phase;

use crate::handlers::{Good, Paid, Shop};
use crate::natural_handlers::{Announces, Announcing, Balance, Booking, Natural};
use crate::world::SqliteWorld;
use crate::{Connecting, bench, world};

/// Three versions of the balance of one account.
fn versions(account: u32) -> Vec<Balance> {
    let version =
        |version: i64| Balance { id: format!("{account} {version}"), account, version, balance: version * 10 };
    (1..=3).map(version).collect()
}

/// Runs the proof for a handler that does this.
async fn proof(booking: Booking) -> Result<(), BoxError> {
    let world = world().await;
    world
        .run("CREATE TABLE balances (account INTEGER PRIMARY KEY, version INTEGER NOT NULL, balance INTEGER NOT NULL)")
        .await;
    let trial = trial(world.clone(), booking).await;
    let balance = async |account: u32| {
        let sum = format!("SELECT coalesce(sum(balance), -1) FROM balances WHERE account = {account}");
        Ok(world.number(&sum).await)
    };
    trial.is_natural(versions, balance).await
}

async fn trial(world: Arc<SqliteWorld>, booking: Booking) -> Trial<Sqlite> {
    let connect = move || -> Connecting {
        let world = world.clone();
        Box::pin(async move { world.store(idem_conformance::store::Setup::default()).await })
    };
    Trial::new(connect).state(booking).handler::<Natural>().await.unwrap()
}

#[tokio::test]
async fn a_handler_that_keeps_the_newest_version_is_natural() {
    proof(Booking::Newest).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_keeps_the_newest_version_has_one_effect_wherever_it_crashes() {
    let world = world().await;
    world
        .run("CREATE TABLE balances (account INTEGER PRIMARY KEY, version INTEGER NOT NULL, balance INTEGER NOT NULL)")
        .await;
    let trial = trial(world.clone(), Booking::Newest).await;
    let first = |account: u32| versions(account).swap_remove(0);
    let sum = async || Ok(world.number("SELECT coalesce(sum(balance), 0) FROM balances").await);
    let report = trial.crash_everywhere(first, sum).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::BeforeHandler) > 0 && report.points_in(Phase::InCommit) > 0, "{report}");
}

#[tokio::test]
async fn a_handler_that_says_natural_and_adds_to_a_balance_fails_by_name() {
    let why = proof(Booking::Add).await.unwrap_err().to_string();
    for part in ["\"balance\"", "`natural`", "each twice", "leave 120", "leave 60"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
}

#[tokio::test]
async fn a_handler_that_depends_on_the_order_is_not_natural() {
    for (booking, part) in [(Booking::Last, "in reverse order"), (Booking::First, "in reverse order")] {
        let why = proof(booking).await.unwrap_err().to_string();
        assert!(why.contains("\"balance\"") && why.contains(part), "{why}");
    }
}

#[tokio::test]
async fn a_proof_of_dead_letters_or_of_nothing_is_refused() {
    let why = proof(Booking::Never).await.unwrap_err().to_string();
    assert!(why.contains("\"balance\"") && why.contains("dead letter (permanent)") && why.contains("never"), "{why}");
    let world = world().await;
    let one = |account: u32| versions(account).into_iter().take(1).collect::<Vec<_>>();
    let trial = trial(world.clone(), Booking::Newest).await;
    assert!(trial.is_natural(one, async |_: u32| Ok(0)).await.unwrap_err().to_string().contains("two"));
    world
        .run("CREATE TABLE balances (account INTEGER PRIMARY KEY, version INTEGER NOT NULL, balance INTEGER NOT NULL)")
        .await;
    assert!(trial.is_natural(versions, async |_: u32| Ok(0)).await.unwrap_err().to_string().contains("no effect"));
}

/// Runs the proof for a handler that stages messages in this way.
async fn proof_of_staging(announcing: Announcing) -> Result<(), BoxError> {
    let world = world().await;
    world.run("CREATE TABLE announced (id INTEGER PRIMARY KEY)").await;
    let connected = world.clone();
    let connect = move || -> Connecting {
        let world = connected.clone();
        Box::pin(async move { world.store(idem_conformance::store::Setup::default()).await })
    };
    let trial = Trial::new(connect).state(announcing).handler::<Announces>().await?;
    let two = |number: u32| (1..=2).map(|n| Paid { id: number * 10 + n, amount: 1 }).collect::<Vec<_>>();
    let announced =
        async |number: u32| Ok(world.number(&format!("SELECT count(*) FROM announced WHERE id / 10 = {number}")).await);
    trial.is_natural(two, announced).await
}

#[tokio::test]
async fn a_natural_handler_may_stage_its_messages_for_each_copy_or_only_at_first() {
    for announcing in [Announcing::Always, Announcing::AtFirst] {
        proof_of_staging(announcing).await.unwrap();
    }
}

#[tokio::test]
async fn a_handler_that_stages_another_message_under_the_id_of_the_first_is_not_natural() {
    let why = proof_of_staging(Announcing::LessForACopy).await.unwrap_err().to_string();
    for part in ["\"announces\"", "each twice", "to \"paid\"", "to \"invoiced\"", "under one id"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
}

/// Each copy would publish messages that no consumer recognizes.
#[tokio::test]
async fn a_handler_that_stages_further_messages_for_a_copy_is_not_natural() {
    for (announcing, staged) in [(Announcing::MoreForACopy, 6), (Announcing::UnderNewIds, 8)] {
        let why = proof_of_staging(announcing).await.unwrap_err().to_string();
        let staged = format!("stage {staged} messages");
        for part in ["\"announces\"", "each twice", &staged, "they stage 4", ".id(..)"] {
            assert!(why.contains(part), "{part} is not in {why}");
        }
    }
}

#[tokio::test]
async fn a_handler_with_claims_proves_nothing() {
    let world = world().await;
    let trial = bench(world, Shop::default()).handler::<Good>().await.unwrap();
    let why = trial.is_natural(versions, async |_: u32| Ok(0)).await.unwrap_err().to_string();
    assert!(why.contains("\"paid\"") && why.contains("`natural`"), "{why}");
}
