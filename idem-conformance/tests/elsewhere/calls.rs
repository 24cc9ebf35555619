//! External calls.

use std::collections::BTreeSet;

use idem_core::{Extract, Handler};
use idem_test::harness::{CrashReport, Phase};

use super::handlers::{Charge, Connection, Order, Pays, PaysItself, Shop, Transfer};
use super::{bench, opened, order, rows};

/// Crashes everywhere, and compares the payments; the trial counts the charges. `None` without a server.
async fn crash<H>() -> Option<(Result<CrashReport, String>, Shop)>
where
    H: Handler<Message = Order, Connection = Connection>,
    H::Params: Extract<Shop>,
{
    let (world, shop) = opened().await?;
    let trial = bench(world.clone(), shop.clone()).provider(&shop.bank).handler::<H>().await.unwrap();
    let payments = async || Ok(rows(&world, &shop.payments).await);
    let report = trial.crash_everywhere(order, payments).await.map_err(|error| error.to_string());
    Some((report, shop))
}

/// Asserts that each order was charged once.
fn each_is_charged_once(shop: &Shop) {
    let ledger = shop.bank.ledger();
    let orders: BTreeSet<&str> = ledger.iter().map(|charge| &*charge.body).collect();
    assert_eq!(ledger.len(), orders.len(), "{ledger:?}");
}

/// Its lease is longer than a process has for a message, and nobody waits for it.
#[tokio::test]
async fn a_call_under_its_key_charges_once_wherever_its_process_dies() {
    let Some((report, shop)) = crash::<Pays<Charge<true>>>().await else { return };
    let report = report.unwrap();
    println!("{report}");
    let certain = [Phase::CallWritten, Phase::InCall, Phase::AnswerRead];
    assert_eq!(certain.map(|phase| report.points_in(phase)), [1; 3], "{report}");
    let text = report.to_string();
    for phase in [
        "as the call is prepared",
        "with `called_at` written",
        "in the call",
        "with the answer read",
        "as the answer is kept",
        "before the handler",
        "in the handler",
        "in the commit",
        "afterwards",
    ] {
        assert!(text.contains(phase), "{phase} is not in {text}");
    }
    each_is_charged_once(&shop);
}

#[tokio::test]
async fn a_call_that_keeps_its_key_to_itself_is_found_to_charge_twice() {
    let Some((report, _)) = crash::<Pays<Charge<false>>>().await else { return };
    let seen = report.unwrap_err();
    let point = "the process died at point 1 in the call (during wait 1, the request may be sent), ";
    assert!(seen.starts_with(point) && seen.contains("it was charged twice"), "{seen}");
    assert!(seen.contains("under no key") && seen.contains("`OutboundKey`"), "{seen}");
}

/// Each message was charged once more for each process that died in its call.
#[tokio::test]
async fn a_trial_that_does_not_see_the_provider_says_so() {
    let Some((world, shop)) = opened().await else { return };
    let trial = bench(world.clone(), shop.clone()).handler::<Pays<Charge<false>>>().await.unwrap();
    let payments = async || Ok(rows(&world, &shop.payments).await);
    let report = trial.crash_everywhere(order, payments).await.unwrap();
    assert!(report.to_string().contains(" points, one effect each (charges unseen): "), "{report}");
}

#[tokio::test]
async fn a_handler_that_charges_by_itself_is_found_to_charge_twice() {
    let Some((report, _)) = crash::<PaysItself>().await else { return };
    let seen = report.unwrap_err();
    assert!(seen.contains(" in the handler (during wait 1), and it was charged twice"), "{seen}");
}

/// Nobody waits for the two minutes after which the bank may be asked, and no process calls while it has a call under way.
#[tokio::test]
async fn a_call_without_a_key_charges_once_wherever_its_process_dies() {
    let Some((report, shop)) = crash::<Pays<Transfer<true>>>().await else { return };
    let report = report.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::InCall) > 1, "before the request, and behind it: {report}");
    each_is_charged_once(&shop);
}

#[tokio::test]
async fn a_question_that_sees_no_charge_is_found_to_charge_twice() {
    let Some((report, _)) = crash::<Pays<Transfer<false>>>().await else { return };
    let seen = report.unwrap_err();
    assert!(seen.contains(" in the call (during wait ") && seen.contains("it was charged twice"), "{seen}");
}
