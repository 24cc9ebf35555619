//! Local messages.

use idem_test::harness::Phase;

use super::handlers::{Books, Charge, HandsOver, Pays};
use super::{bench, opened, order, rows};

#[tokio::test]
async fn a_local_message_has_one_effect_wherever_a_process_dies() {
    let Some((world, shop)) = opened().await else { return };
    let trial = bench(world.clone(), shop.clone()).local::<Books<false>>();
    let trial = trial.handler::<HandsOver<Books<false>>>().await.unwrap();
    let both = async || Ok((rows(&world, &shop.receipts).await, rows(&world, &shop.payments).await));
    let report = trial.crash_everywhere(order, both).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::InLocalHandler) > 1, "{report}");
}

#[tokio::test]
async fn an_effect_of_a_local_handler_outside_of_its_transaction_is_there_twice_after_a_crash() {
    let Some((world, shop)) = opened().await else { return };
    let trial = bench(world.clone(), shop.clone()).local::<Books<true>>();
    let trial = trial.handler::<HandsOver<Books<true>>>().await.unwrap();
    let both = async || Ok((rows(&world, &shop.receipts).await, shop.outside()));
    let seen = trial.crash_everywhere(order, both).await.unwrap_err().to_string();
    assert!(seen.contains("there were effects in both processes"), "{seen}");
}

#[tokio::test]
async fn a_call_that_a_local_message_starts_charges_once_wherever_a_process_dies() {
    let Some((world, shop)) = opened().await else { return };
    let trial = bench(world.clone(), shop.clone()).provider(&shop.bank).local::<Pays<Charge<true>>>();
    let trial = trial.handler::<HandsOver<Pays<Charge<true>>>>().await.unwrap();
    let both = async || Ok((rows(&world, &shop.receipts).await, rows(&world, &shop.payments).await));
    let report = trial.crash_everywhere(order, both).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::InCall) > 0 && report.points_in(Phase::BeforeCall) == 0, "{report}");
}

#[tokio::test]
async fn a_trial_without_the_handler_of_a_local_message_names_it() {
    let Some((world, shop)) = opened().await else { return };
    let trial = bench(world.clone(), shop.clone()).handler::<HandsOver<Books<false>>>().await.unwrap();
    let receipts = async || Ok(rows(&world, &shop.receipts).await);
    let seen = trial.crash_everywhere(order, receipts).await.unwrap_err().to_string();
    assert!(seen.contains("the handler \"books\" cannot take a local message"), "{seen}");
}
