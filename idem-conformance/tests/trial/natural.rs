//! The proof that a handler is natural.

use idem_core::{BoxError, Sqlite};
use idem_test::Trial;
use idem_test::harness::Phase;

use crate::bench;
use crate::handlers::{Good, Paid, Shop};
use crate::natural_handlers::{Announces, Announcing, Balance, Booking, Natural};

/// Three versions of the balance of one account.
fn versions(account: u32) -> Vec<Balance> {
    let version =
        |version: i64| Balance { id: format!("{account} {version}"), account, version, balance: version * 10 };
    (1..=3).map(version).collect()
}

const BALANCES: &str =
    "CREATE TABLE balances (account INTEGER PRIMARY KEY, version INTEGER NOT NULL, balance INTEGER NOT NULL)";

async fn trial(booking: Booking) -> Trial<Sqlite> {
    Trial::sqlite().tables(BALANCES).state(booking).handler::<Natural>().await.unwrap()
}

/// Runs the proof for a handler that does this.
async fn proof(booking: Booking) -> Result<(), BoxError> {
    let trial = trial(booking).await;
    let balance = async |account: u32| {
        trial.number(&format!("SELECT coalesce(sum(balance), -1) FROM balances WHERE account = {account}")).await
    };
    trial.is_natural(versions, balance).await
}

#[tokio::test]
async fn a_handler_that_keeps_the_newest_version_is_natural() {
    proof(Booking::Newest).await.unwrap();
}

#[tokio::test]
async fn a_handler_that_keeps_the_newest_version_has_one_effect_wherever_it_crashes() {
    let trial = trial(Booking::Newest).await;
    let first = |account: u32| versions(account).swap_remove(0);
    let sum = async || trial.number("SELECT sum(balance) FROM balances").await;
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
    let one = |account: u32| versions(account).into_iter().take(1).collect::<Vec<_>>();
    let trial = trial(Booking::Newest).await;
    assert!(trial.is_natural(one, async |_: u32| Ok(0)).await.unwrap_err().to_string().contains("two"));
    assert!(trial.is_natural(versions, async |_: u32| Ok(0)).await.unwrap_err().to_string().contains("no effect"));
}

/// Runs the proof for a handler that stages messages in this way.
async fn proof_of_staging(announcing: Announcing) -> Result<(), BoxError> {
    let tables = "CREATE TABLE announced (id INTEGER PRIMARY KEY)";
    let trial = Trial::sqlite().tables(tables).state(announcing).handler::<Announces>().await?;
    let two = |number: u32| (1..=2).map(|n| Paid { id: number * 10 + n, amount: 1 }).collect::<Vec<_>>();
    let announced =
        async |number: u32| trial.number(&format!("SELECT count(*) FROM announced WHERE id / 10 = {number}")).await;
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
    let trial = bench(Shop::default()).handler::<Good>().await.unwrap();
    let why = trial.is_natural(versions, async |_: u32| Ok(0)).await.unwrap_err().to_string();
    assert!(why.contains("\"paid\"") && why.contains("`natural`"), "{why}");
}
