//! Relays.

use std::collections::BTreeSet;
use std::time::Duration;

use idem_test::harness::{CrashReport, Phase};
use idem_test::{MemorySink, Reply};

use super::handlers::Publishes;
use super::{bench, opened, order, rows};

/// Crashes everywhere, of a handler that publishes to a sink with these replies. `None` without a server.
async fn crash(reply: Reply) -> Option<(Result<CrashReport, String>, MemorySink)> {
    let (world, shop) = opened().await?;
    let sink = MemorySink::new();
    sink.on_publish(move |_| reply.clone());
    let trial = bench(world.clone(), shop.clone()).relay(&sink).handler::<Publishes>().await.unwrap();
    let receipts = async || Ok(rows(&world, &shop.receipts).await);
    let report = trial.crash_everywhere(order, receipts).await.map_err(|error| error.to_string());
    Some((report, sink))
}

/// A relay that deletes a message before its confirm does so while it is on its way.
#[tokio::test]
async fn a_message_is_published_under_one_id_wherever_its_process_dies() {
    let Some((report, sink)) = crash(Reply::ConfirmAfter(Duration::from_millis(50))).await else { return };
    let report = report.unwrap();
    println!("{report}");
    assert!(report.points_in(Phase::BeforePublish) > 0 && report.points_in(Phase::ConfirmRead) > 0, "{report}");
    assert!(report.points_in(Phase::InPublish) > 1, "while the message is on its way, and behind that: {report}");
    assert!(report.points_in(Phase::InDelete) > 0 && report.points_in(Phase::Deleted) > 0, "{report}");
    let published = sink.published();
    let ids: BTreeSet<_> = published.iter().map(|message| message.id()).collect();
    assert!(published.len() > ids.len(), "what was published and not deleted is published again: {report}");
}

#[tokio::test]
async fn a_message_that_is_deleted_before_the_broker_has_it_is_found() {
    let Some((report, _)) = crash(Reply::Buffer).await else { return };
    let seen = report.unwrap_err();
    assert!(seen.contains("and it published 0 messages, and one message publishes 1"), "{seen}");
}
