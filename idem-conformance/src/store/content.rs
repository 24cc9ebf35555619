//! Content that a column could reject: storing never fails because of a message's content.

use std::time::Duration;

use idem_core::store::{ClaimState, InboxRows, NewRow, Row, RowKind, RowResult, Transactions};
use idem_core::{Delivery, Headers, Reason};

use super::stage::{Stage, committed};
use super::world::World;

/// Stores a delivery and returns it as the inbox would run it.
async fn stored<W: World>(stage: &Stage<W>, key: &str, delivery: &Delivery, error: &str) -> Row {
    let identity = stage.id(key);
    let mut txn = stage.begin().await;
    stage.store.claim(&mut txn, &[&identity], ClaimState::Waiting).await.unwrap();
    let state = Ok(Duration::ZERO);
    let row = NewRow::new(&identity, delivery, state).with_attempts(2, error);
    stage.store.insert(&mut txn, &[row]).await.unwrap();
    committed(stage.commit(txn).await);
    stage.fetch_row(RowKind::Ordinary).await
}

/// Payload, headers and properties are returned unchanged.
pub async fn odd_content_makes_the_round_trip<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let bytes: Vec<u8> = (0..=255).collect();
    let mut headers = Headers::new();
    headers.push("plain", "text");
    headers.push("plain", "the second of a name");
    headers.push("bytes", bytes.clone());
    headers.push("nul\0name", "a\0b");
    headers.push("", "");
    headers.push("surrogate", vec![0xed, 0xa0, 0x80]);
    let delivery = Delivery::new("orders \u{1f4e6}", bytes.clone())
        .with_headers(headers.clone())
        .with_message_id(Some("id\0\u{7f}'\"".to_owned()))
        .with_event_type(Some("OrderPaid".to_owned()))
        .with_position(Some("orders/3/77".to_owned()));
    let row = stored(&stage, "a", &delivery, "").await.delivery;
    assert_eq!(row.payload().as_ref(), bytes);
    assert_eq!(*row.headers(), headers);
    assert_eq!(row.message_id(), Some("id\0\u{7f}'\""));
    assert_eq!((row.event_type(), row.position()), (Some("OrderPaid"), Some("orders/3/77")));
    assert_eq!((row.source(), row.attempt()), ("orders \u{1f4e6}", 3));

    let empty = stored(&stage, "b", &Delivery::new("", ""), "").await.delivery;
    assert!(empty.payload().is_empty() && empty.headers().is_empty());
    assert_eq!((empty.message_id(), empty.event_type(), empty.position()), (None, None, None));
}

/// An error text with a NUL, which is written as `\\0`, and one of 4,000 characters of four bytes.
pub async fn odd_errors_make_the_round_trip<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let long = "\u{1f4a5}".repeat(4000);
    for (key, error) in [("a", "a\0b"), ("b", long.as_str()), ("c", "'; DROP TABLE x; --"), ("d", "")] {
        let row = stored(&stage, key, &Delivery::new("orders", "x"), error).await;
        let kept = error.replace('\0', "\\0");
        assert_eq!(row.error, kept);
        let result = RowResult::Failed { next: Err(Reason::Exhausted), error: error.to_owned() };
        assert!(stage.store.record_result(&row, &result).await.unwrap());
        assert_eq!(stage.dead().await[0].error, kept);
    }
}

/// A payload over the default limit becomes a dead letter, kept in full.
pub async fn a_payload_over_a_mebibyte_is_kept_whole<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for size in [1024 * 1024 + 1, 8 * 1024 * 1024] {
        let payload = (0..size).map(|n| (n % 251) as u8).collect::<Vec<_>>();
        let row = stored(&stage, &size.to_string(), &Delivery::new("orders", payload.clone()), "").await;
        assert!(row.delivery.payload().as_ref() == payload, "the payload has changed");
    }
}
