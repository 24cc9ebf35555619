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

/// The trace of a few calls, which is accepted as it is.
async fn short() -> (Trace, String) {
    let text = short_payments(SqliteWorld::make().await.unwrap()).await;
    accepted(&text);
    (Trace::of(&text), text)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_without_a_step_of_a_call_is_refused() {
    let (trace, text) = short().await;
    for step in ["call-taken", "sent", "answered", "answer-kept", "call-failed", "call-not-done"] {
        assert!(trace.count(step) > 0, "no step {step}:\n{text}");
        for place in 0..trace.count(step) {
            refused(&trace.without(step, place), &format!("{step} {place} is missing"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_with_two_steps_of_a_call_exchanged_is_refused() {
    let (trace, _) = short().await;
    for (first, second) in [("call-taken", "sent"), ("answered", "answer-kept"), ("answer-kept", "started")] {
        let exchanged = trace.exchanged(first, second).unwrap_or_else(|| panic!("no {first} and {second}"));
        refused(&exchanged, &format!("{first} and {second} are exchanged"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_with_a_step_of_a_call_twice_is_refused() {
    let (trace, _) = short().await;
    for step in ["call-taken", "sent", "answered", "answer-kept"] {
        refused(&trace.twice(step), &format!("{step} comes twice"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_with_a_call_under_another_key_is_refused() {
    let (_, text) = short().await;
    let sent = text.lines().find(|line| line.contains("\tsent\t")).unwrap();
    let other = sent.replacen("key=", "key=other-", 1);
    refused(&text.replacen(sent, &other, 1), "a call was sent under another key");
}
