//! The views that somebody on call reads.

use std::time::Duration;

use idem_core::store::{FetchFor, FetchLimit, InboxRows, OutboxRows, RowKind};
use idem_core::{Outgoing, Reason};
use sqlx::{AssertSqlSafe, Connection};

use crate::world::{LONG, World};

/// What these columns of a view have in its only row, with `|` between them.
async fn shown(world: &World, columns: &str, view: &str) -> String {
    let columns = columns.split(", ").map(|column| format!("coalesce({column}, '-')")).collect::<Vec<_>>();
    let asked = AssertSqlSafe(format!("SELECT {} FROM idem_{view}", columns.join(" || '|' || ")));
    sqlx::query_scalar(asked).fetch_one(&mut world.outsider().await).await.unwrap()
}

#[tokio::test]
async fn messages_of_the_inbox_are_shown_with_their_names_and_as_text() {
    let world = World::new().await;
    world.store("a", Ok(Duration::ZERO)).await;
    let columns = "consumer, handler, key, state, locked_until, payload";
    assert_eq!(shown(&world, columns, "scheduled").await, "billing|order_paid|a|scheduled|-|a");
    let (handlers, token) = ([FetchFor::new(world.handler, LONG)], uuid::Uuid::new_v4());
    let fetched = world.store.fetch(&handlers, FetchLimit::rows(RowKind::Ordinary, 1), token).await.unwrap();
    assert_eq!(fetched.rows.len(), 1);
    assert_eq!(shown(&world, "state, run_at < locked_until, crash_count", "scheduled").await, "running|1|1");
    assert_eq!(world.count("idem_dead_letters").await, 0);
    world.store("dead", Err(Reason::Undecodable)).await;
    let expected = format!("billing|order_paid|dead|{}|dead", Reason::Undecodable);
    assert_eq!(shown(&world, "consumer, handler, key, reason, payload", "dead_letters").await, expected);
    assert_eq!(world.count("idem_scheduled").await, 1);
}

#[tokio::test]
async fn the_outbox_is_shown_with_what_waits_and_what_is_dead() {
    let world = World::new().await;
    world.store.register_outbox("billing").await.unwrap();
    let mut connection = world.outsider().await;
    let mut tx = connection.begin().await.unwrap();
    let message = Outgoing::new("orders", "{}").key("k").event_type("paid");
    world.store.outbox("billing").stage(&mut tx, [message]).await.unwrap();
    tx.commit().await.unwrap();
    let columns = "outbox, state, destination, key, event_type, payload";
    assert_eq!(shown(&world, columns, "outbox").await, "billing|waiting|orders|k|paid|{}");
    world
        .sql(
            "INSERT INTO idem_outbox_dead (outbox_id, message_id, created_at, died_at, attempts, error, destination,
                                           key, envelope, payload)
             SELECT outbox_id, message_id, created_at, created_at, 3, 'refused', destination, key, envelope, payload
             FROM idem_outbox_messages; DELETE FROM idem_outbox_messages",
        )
        .await;
    assert_eq!(shown(&world, "outbox, state, attempts, error", "outbox").await, "billing|dead|3|refused");
}
