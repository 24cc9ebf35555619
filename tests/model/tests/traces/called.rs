//! Traces of calls: those of real workers are paths, and one that was changed is not.

use idem_conformance::store::World;

use super::calls::{payments, short_payments};
use super::changes::Trace;
use super::checker::{accepted, refused};
use super::postgres::PostgresWorld;
use super::sqlite::SqliteWorld;

/// Generates a test for each database and kind of provider.
macro_rules! providers {
    ($($name:ident $world:ty, $keyed:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let Some(world) = <$world>::make().await else { return };
            let trace = payments::<$world, $keyed>(world).await;
            accepted(&trace);
        }
    )*};
}

providers! {
    on_sqlite_calls_with_keys_are_a_path SqliteWorld, true;
    on_sqlite_calls_without_keys_are_a_path SqliteWorld, false;
    on_postgres_calls_with_keys_are_a_path PostgresWorld, true;
    on_postgres_calls_without_keys_are_a_path PostgresWorld, false;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_trace_of_calls_is_refused() {
    let text = short_payments(SqliteWorld::make().await.unwrap()).await;
    accepted(&text);
    let trace = Trace::of(&text);
    for step in ["call-fetched", "sent", "answered", "answer-kept", "call-failed", "call-not-done"] {
        trace.needs_each(step);
    }
    for (first, second) in [("call-fetched", "sent"), ("answered", "answer-kept"), ("answer-kept", "started")] {
        trace.needs_in_order(first, second);
    }
    for step in ["call-fetched", "sent", "answered", "answer-kept"] {
        refused(&trace.twice(step), &format!("{step} comes twice"));
    }
    let sent = text.lines().find(|line| line.contains("\tsent\t")).unwrap();
    let other = sent.replacen("key=", "key=other-", 1);
    refused(&text.replacen(sent, &other, 1), "a call was sent under another key");
}
