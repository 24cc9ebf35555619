//! The views that somebody on call reads.

use std::time::Duration;

use idem_core::store::{OutboxRows, RowKind};
use idem_core::{Key, KeyPart, Outgoing, Reason};
use sqlx::{Connection, Executor};
use uuid::Uuid;

use crate::world::{World, world};

const NOW: Duration = Duration::ZERO;

/// What these columns of a view have in its only row.
async fn shown(world: &mut World, columns: &str, view: &str) -> Vec<Option<String>> {
    let texts = columns.split(", ").map(|column| format!("({column})::text")).collect::<Vec<_>>().join(", ");
    let asked = sqlx::AssertSqlSafe(format!("SELECT ARRAY[{texts}] FROM {view}"));
    sqlx::query_scalar(asked).fetch_one(&mut world.other).await.unwrap()
}

fn texts(texts: &[&str]) -> Vec<Option<String>> {
    texts.iter().map(|text| Some((*text).to_owned())).collect()
}

#[tokio::test]
async fn a_scheduled_message_is_shown_with_its_names_its_state_and_its_payload() {
    let Some(mut world) = world().await else { return };
    world.schedule("a", Ok(NOW)).await;
    let columns = "consumer, handler, key, state, crash_count, payload";
    assert_eq!(
        shown(&mut world, columns, "scheduled").await,
        texts(&["billing", "order_paid", "a", "scheduled", "0", "a"])
    );
    let row = world.fetch(RowKind::Ordinary, 1).await.remove(0);
    let columns = "key, state, locked_by, locked_until > now(), crash_count";
    let token = row.locked_by.unwrap().to_string();
    assert_eq!(shown(&mut world, columns, "scheduled").await, texts(&["a", "running", &token, "true", "1"]));
    assert_eq!(world.number("SELECT count(*) FROM dead_letters").await, 0);
}

#[tokio::test]
async fn a_dead_letter_is_shown_whatever_is_in_it() {
    let Some(mut world) = world().await else { return };
    world.schedule("a", Err(Reason::Undecodable)).await;
    let columns = "consumer, handler, key, reason, payload";
    let expected = texts(&["billing", "order_paid", "a", Reason::Undecodable.as_str(), "a"]);
    assert_eq!(shown(&mut world, columns, "dead_letters").await, expected);
    let odd = r#"UPDATE inbox_messages SET key = '\xff', payload = '\xff00', handler_id = handler_id + 1000,
                 envelope = '{"source":"orders","event_type":"a\u0000"}'"#;
    world.other.execute(odd).await.unwrap();
    let columns = "consumer, handler, key, event_type, payload";
    let expected = vec![None, None, Some("0xff".to_owned()), None, None];
    assert_eq!(shown(&mut world, columns, "dead_letters").await, expected);
    world.other.execute("UPDATE inbox_messages SET payload = '\\x6100'").await.unwrap();
    assert_eq!(shown(&mut world, "payload", "dead_letters").await, [None]);
}

#[tokio::test]
async fn the_outbox_is_shown_with_what_waits_and_what_is_dead() {
    let Some(mut world) = world().await else { return };
    world.store.register_outbox("billing").await.unwrap();
    let mut tx = world.other.begin().await.unwrap();
    let message = Outgoing::new("orders", "{}").key("k").event_type("paid").header("a", vec![0xff]);
    world.store.outbox("billing").stage(&mut tx, [message]).await.unwrap();
    tx.commit().await.unwrap();
    let columns = "outbox, state, destination, key, event_type, payload";
    let waits = texts(&["billing", "waiting", "orders", "k", "paid", "{}"]);
    assert_eq!(shown(&mut world, columns, "outbox").await, waits);
    let dies = "WITH gone AS (DELETE FROM outbox_messages RETURNING *)
                INSERT INTO outbox_dead (outbox_id, message_id, created_at, attempts, destination, key, envelope,
                                         payload, error)
                SELECT outbox_id, message_id, created_at, 3, destination, key, envelope, '\\xff', 'refused' FROM gone";
    world.other.execute(dies).await.unwrap();
    let columns = "outbox, state, destination, key, attempts, error, payload";
    let mut dead = texts(&["billing", "dead", "orders", "k", "3", "refused"]);
    dead.push(None);
    assert_eq!(shown(&mut world, columns, "outbox").await, dead);
}

/// As the log and [`Filter::key`](idem_core::operator::Filter::key) have it.
#[tokio::test]
async fn a_key_is_shown_as_everywhere_else() {
    let Some(mut world) = world().await else { return };
    let (uuid, bytes, control) = (Uuid::new_v4(), [0xff_u8, 0], "a\u{1}b");
    let composite: [&[&dyn KeyPart]; 4] = [&[&"eu", &7], &[&"eu", &uuid], &[&"eu", &control], &[&"eu", &&bytes[..]]];
    let keys = [Key::of("a"), Key::of(&7), Key::of(&uuid), Key::of(&bytes), Key::of(control)];
    for key in keys.into_iter().chain(composite.map(Key::composite)) {
        let key = key.unwrap();
        let shown: String =
            sqlx::query_scalar("SELECT key_text($1)").bind(key.as_bytes()).fetch_one(&mut world.other).await.unwrap();
        assert_eq!(shown, key.to_string());
    }
}
