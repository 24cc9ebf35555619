//! Traces of relays: those of real ones are paths, and one that was changed is not.

use idem_conformance::store::World;
use idem_model::check_trace;

use super::checker::{accepted, refused};
use super::postgres::PostgresWorld;
use super::relays::{relayed, shortly_relayed};
use super::sqlite::SqliteWorld;

/// Generates a test for each database.
macro_rules! databases {
    ($($name:ident $world:ty;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let Some(world) = <$world>::make().await else { return };
            let (trace, messages) = relayed(world).await;
            accepted(&trace);
            assert_eq!(check_trace(&trace).unwrap().outgoing, messages);
        }
    )*};
}

databases! {
    on_sqlite_relays_are_a_path SqliteWorld;
    on_postgres_relays_are_a_path PostgresWorld;
}

/// The trace without the first step of this name.
fn without(trace: &str, step: &str) -> String {
    let is = |line: &&str| line.starts_with('>') && line.split('\t').nth(4) == Some(step);
    let is_done = |line: &&str| {
        let end = format!("<\t{}\t", line.split('\t').nth(1).unwrap());
        trace.lines().any(|other| other.starts_with(&end) && !other.ends_with("nothing"))
    };
    let begin = trace.lines().filter(is).find(is_done).unwrap_or_else(|| panic!("no step {step}:\n{trace}"));
    let number = begin.split('\t').nth(1);
    let others = trace.lines().filter(|line| line.split('\t').nth(1) != number);
    others.map(|line| format!("{line}\n")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_trace_of_relays_is_refused() {
    let trace = shortly_relayed(SqliteWorld::make().await.unwrap()).await;
    accepted(&trace);
    for step in ["lease-taken", "read", "published", "confirmed"] {
        refused(&without(&trace, step), &format!("{step} is missing"));
    }
    // As if the broker had lost the message.
    let lost = trace.replacen("\tconfirmed\t", "\tunconfirmed\t", 1);
    refused(&lost, "a message is deleted, and not confirmed");
}
