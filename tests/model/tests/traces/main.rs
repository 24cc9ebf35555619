//! Traces of real workers, checked against the model: over each database, in each mode, what a worker did to each key is
//! a path of the model. And a trace that was changed is not.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod called;
mod calls;
mod changes;
mod checker;
mod life;
mod orders;
mod outgoing;
mod payments;
#[path = "../../../../idem-conformance/tests/worlds/postgres.rs"]
mod postgres;
mod relays;
#[path = "../../../../idem-conformance/tests/worlds/sqlite.rs"]
mod sqlite;

use idem_conformance::store::World;

use changes::Trace;
use checker::{accepted, refused};
use life::{Mode, lives};
use postgres::PostgresWorld;
use sqlite::SqliteWorld;

/// Generates a test for each mode of a worker.
macro_rules! modes {
    ($world:ty: $($name:ident $mode:expr;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            let Some(world) = <$world>::make().await else { return };
            let trace = lives(world, $mode).await;
            accepted(&trace);
        }
    )*};
}

modes! { SqliteWorld:
    on_sqlite_single_deliveries_are_a_path Mode { inbox: false, batch: 1 };
    on_sqlite_stored_messages_are_a_path Mode { inbox: true, batch: 1 };
    on_sqlite_batches_are_a_path Mode { inbox: false, batch: 16 };
    on_sqlite_stored_batches_are_a_path Mode { inbox: true, batch: 16 };
}

modes! { PostgresWorld:
    on_postgres_single_deliveries_are_a_path Mode { inbox: false, batch: 1 };
    on_postgres_stored_messages_are_a_path Mode { inbox: true, batch: 1 };
    on_postgres_batches_are_a_path Mode { inbox: false, batch: 16 };
    on_postgres_stored_batches_are_a_path Mode { inbox: true, batch: 16 };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_trace_of_messages_is_refused() {
    let text = life::short(SqliteWorld::make().await.unwrap()).await;
    accepted(&text);
    let trace = Trace::of(&text);
    let steps = ["claimed", "committed", "stored", "failed", "fetched", "started", "recorded", "replayed", "discarded"];
    for step in steps {
        trace.needs_each(step);
    }
    for (first, second) in
        [("committed", "acked"), ("claimed", "committed"), ("fetched", "started"), ("stored", "acked")]
    {
        trace.needs_in_order(first, second);
    }
    for step in ["claimed", "committed", "stored", "recorded", "replayed", "discarded", "fetched"] {
        refused(&trace.twice(step), &format!("{step} comes twice"));
    }
    let text = trace.text();
    refused(&text.replacen("starts=1", "starts=0", 1), "a start was not counted");
    refused(&text.replacen("attempts=1 dead", "attempts=2 dead", 1), "an attempt was counted twice");
}
