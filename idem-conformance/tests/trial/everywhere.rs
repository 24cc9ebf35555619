//! Crashes everywhere, on SQLite: a sound handler passes, and each broken one is found.

use std::time::Instant;

use idem_core::{Handler, Sqlite, State};
use idem_test::Trial;
use idem_test::harness::{CrashReport, Phase};
use sqlx::SqliteConnection;

use super::handlers::{Bad, Commits, Fails, Good, Paid, Remembers, Shop};
use super::{BALANCE, bench, paid};

/// Crashes everywhere, and compares the balance.
async fn crash<H>(shop: Shop) -> Result<CrashReport, String>
where
    H: Handler<Message = Paid, Params = State<Shop>, Connection = SqliteConnection>,
{
    let trial = bench(shop).handler::<H>().await.unwrap();
    let balance = async || trial.number(BALANCE).await;
    trial.crash_everywhere(paid, balance).await.map_err(|error| error.to_string())
}

/// A trial of a handler that writes elsewhere.
async fn writes_outside(shop: &Shop) -> Trial<Sqlite> {
    bench(shop.clone()).handler::<Bad>().await.unwrap()
}

#[tokio::test]
async fn a_good_handler_has_one_effect_wherever_it_crashes() {
    let began = Instant::now();
    let report = crash::<Good>(Shop::default()).await.unwrap();
    println!("{report}; it took {:?}", began.elapsed());
    let points = |phase| report.points_in(phase);
    let [before, handler] = [Phase::BeforeHandler, Phase::InHandler].map(points);
    let [commit, after] = [Phase::InCommit, Phase::After].map(points);
    assert_eq!(after, 3, "before the ack, while it is on its way, and after it");
    let text = format!(
        "{} points, one effect each: {before} before the handler, {handler} in the handler, {commit} in the commit, \
         {after} afterwards",
        before + handler + commit + after
    );
    assert_eq!(report.to_string(), text);
}

#[tokio::test]
async fn a_good_handler_has_one_effect_wherever_it_crashes_as_it_runs_from_the_inbox() {
    let trial = bench(Shop::default()).inbox().handler::<Good>().await.unwrap();
    let report = trial.crash_everywhere(paid, async || trial.number(BALANCE).await).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::BeforeHandler) > 10, "it is stored, acked, fetched and started: {report}");
}

#[tokio::test]
async fn a_handler_that_fails_first_has_one_effect_wherever_it_crashes() {
    let report = crash::<Fails>(Shop::default()).await.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::InHandler) > 1 && report.points_in(Phase::InCommit) > 1, "it runs twice: {report}");
    assert!(report.points_in(Phase::After) > 3, "the failure is recorded: {report}");
}

#[tokio::test]
async fn an_effect_outside_of_the_transaction_is_there_twice_after_a_crash() {
    let shop = Shop::default();
    let trial = writes_outside(&shop).await;
    let seen = trial.crash_everywhere(paid, async || Ok(shop.outside())).await.unwrap_err().to_string();
    let expected = "and there were effects in both processes: of the one that died (25), and of the next one (25); that of \
                    one message is 25.";
    let point = "the process died at point 2 in the handler (during wait 1), ";
    assert!(seen.starts_with(point) && seen.contains(expected), "{seen}");
}

/// A row that is changed twice has changed as many rows as one that is changed once.
#[tokio::test]
async fn an_effect_in_both_processes_is_found_in_rows_too() {
    let shop = Shop::default();
    let trial = writes_outside(&shop).await;
    let rows = async || Ok(vec![("balance", shop.outside())]);
    let seen = trial.crash_everywhere(paid, rows).await.unwrap_err().to_string();
    assert!(seen.contains("effects in both processes") && seen.contains("1 row added and 1 removed"), "{seen}");
}

#[tokio::test]
async fn a_handler_that_remembers_a_message_before_the_commit_loses_it() {
    let seen = crash::<Remembers>(Shop::default()).await.unwrap_err();
    assert!(seen.starts_with("the process died at point ") && seen.contains(", and there was no effect"), "{seen}");
}

#[tokio::test]
async fn a_commit_by_the_handler_is_found_before_any_crash() {
    let seen = crash::<Commits>(Shop::default()).await.unwrap_err();
    assert!(seen.contains("it is a dead letter"), "{seen}");
}

#[tokio::test]
async fn a_handler_without_an_effect_shows_nothing() {
    let trial = bench(Shop::default()).handler::<Good>().await.unwrap();
    let seen = trial.crash_everywhere(paid, async || Ok(7)).await.unwrap_err().to_string();
    assert!(seen.contains("a message that was delivered once had no effect"), "{seen}");
}

#[tokio::test]
async fn messages_with_different_effects_are_not_comparable() {
    let trial = bench(Shop::default()).handler::<Good>().await.unwrap();
    let growing = |id: u32| Paid { id, amount: i64::from(id) + 1 };
    let seen = trial.crash_everywhere(growing, async || trial.number(BALANCE).await).await.unwrap_err().to_string();
    assert!(seen.ends_with("the effect was 3, and that of one message is 2"), "{seen}");
}
