//! Staged messages: written by the commit, behind its guard, or not at all.

use std::time::Duration;

use idem_core::store::{
    CommitResult, LeaseRequest, OutboxFilter, OutboxId, OutboxRead, OutboxRow, OutboxRows, RowRef, Transactions,
};
use idem_core::{Outgoing, StagedMessage};
use uuid::Uuid;

use super::stage::{ABUSES, Stage, committed};
use super::world::World;

/// Reads all messages of an outbox, in the order in which they were staged.
pub(crate) async fn all<S: OutboxRows>(store: &S, outbox: OutboxId) -> Vec<OutboxRow> {
    store.read_outbox(outbox, &OutboxRead::ALL).await.unwrap().rows
}

/// A message with this text.
fn message(text: &str) -> StagedMessage {
    StagedMessage::new(Uuid::new_v4(), Outgoing::new("orders", text.to_owned()))
}

/// A message that is large.
fn large(text: &str) -> StagedMessage {
    message(&format!("{text}{}", " ".repeat(20_000)))
}

/// Names a row.
pub(crate) fn of_row(row: &OutboxRow) -> RowRef {
    RowRef { id: row.id, message_id: row.message.id() }
}

fn texts(rows: &[OutboxRow]) -> Vec<String> {
    let text = |row: &OutboxRow| String::from_utf8(row.message.payload().to_vec()).unwrap().trim_end().to_owned();
    rows.iter().map(text).collect()
}

/// An outbox, with a claimed transaction in which an effect was written.
async fn claimed<W: World>(stage: &Stage<W>, key: &str) -> (OutboxId, <W::Store as Transactions>::Txn) {
    let outbox = stage.store.register_outbox("billing").await.unwrap();
    let mut txn = stage.claimed(&stage.id(key)).await;
    stage.effect(&mut txn, key).await;
    (outbox, txn)
}

/// A name keeps one number, and another name has another one.
pub async fn an_outbox_keeps_its_number<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let one = stage.store.register_outbox("billing").await.unwrap();
    assert_eq!(stage.store.register_outbox("billing").await.unwrap(), one);
    let other = stage.store.register_outbox("shipping").await.unwrap();
    assert!(other.number != one.number && other.namespace != one.namespace, "{one:?} {other:?}");
}

/// What was staged is there with the claim, in the order in which it was staged, and in this outbox only.
pub async fn staged_messages_are_committed_with_the_claim_and_in_order<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (key, form) in [("small", message as fn(&str) -> StagedMessage), ("large", large)] {
        let (outbox, mut txn) = claimed(&stage, key).await;
        stage.store.stage(&mut txn, outbox, vec![form("one"), form("two")], Vec::new());
        stage.store.stage(&mut txn, outbox, vec![form("three")], Vec::new());
        assert!(
            texts(&all(&stage.store, outbox).await).iter().all(|text| text.len() > 5),
            "{key}: not before the commit"
        );
        committed(stage.commit(txn).await);
        assert!(stage.is_dated(key).await);
        let rows = all(&stage.store, outbox).await;
        assert_eq!(texts(&rows), ["one", "two", "three"], "{key}");
        let done: Vec<_> = rows.iter().map(of_row).collect();
        let token = Uuid::new_v4();
        let hold = LeaseRequest::Hold(Duration::from_secs(10));
        stage.store.lease_outbox(outbox, token, hold).await.unwrap();
        assert_eq!(stage.store.delete_published(outbox, token, &done).await.unwrap(), 3);
        stage.store.lease_outbox(outbox, token, LeaseRequest::Release).await.unwrap();
    }
    let other = stage.store.register_outbox("shipping").await.unwrap();
    assert!(all(&stage.store, other).await.is_empty());
}

/// No content prevents a message from being staged, and each part of it comes back.
pub async fn a_staged_message_is_read_as_it_was<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let odd = || {
        Outgoing::new("to \\ ' \u{e4} $1", vec![0, 0xff, b'\''])
            .key(vec![0_u8, 0xff])
            .event_type("paid '\\")
            .content_type("application/octet-stream")
            .header("tenant", "'\\x00")
            .header("bytes", vec![0xff, 0x00])
    };
    let messages = [odd(), Outgoing::new("", ""), Outgoing::new("big", vec![7; 300_000]).key("k")];
    for (place, sent) in messages.into_iter().enumerate() {
        let key = place.to_string();
        let (outbox, mut txn) = claimed(&stage, &key).await;
        let id = Uuid::new_v4();
        stage.store.stage(&mut txn, outbox, vec![StagedMessage::new(id, sent.clone())], Vec::new());
        committed(stage.commit(txn).await);
        let row = all(&stage.store, outbox).await.pop().unwrap();
        assert_eq!((row.message.id(), row.message.message(), row.message.attempt()), (id, &sent, 1));
        assert!(row.due.is_zero() && row.age.as_secs() < 60, "{row:?}");
    }
}

/// A rollback, a dropped transaction, and a refused commit leave nothing.
pub async fn nothing_staged_survives_a_transaction_that_is_rolled_back<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for form in [message as fn(&str) -> StagedMessage, large] {
        let (outbox, mut txn) = claimed(&stage, "a").await;
        stage.store.stage(&mut txn, outbox, vec![form("rolled back")], Vec::new());
        stage.store.rollback(txn).await.unwrap();
        let (outbox, mut txn) = claimed(&stage, "a").await;
        stage.store.stage(&mut txn, outbox, vec![form("dropped")], Vec::new());
        drop(txn);
        let (outbox, mut txn) = claimed(&stage, "b").await;
        stage.store.stage(&mut txn, outbox, vec![form("swallowed")], Vec::new());
        let _ = stage.execute(&mut txn, "INSERT INTO there_is_no_such_table VALUES (1)").await;
        let done = stage.commit(txn).await;
        let expected: &[&str] = match W::FEATURES.errors_abort {
            true => {
                assert!(matches!(done, CommitResult::Swallowed), "{done:?}");
                &[]
            }
            false => &["swallowed"],
        };
        assert_eq!(texts(&all(&stage.store, outbox).await), expected);
        if !W::FEATURES.errors_abort {
            return;
        }
    }
}

/// A handler that ends its transaction has staged nothing, whatever it has begun afterwards.
pub async fn nothing_staged_survives_a_transaction_that_its_handler_ended<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (form, kind) in [(message as fn(&str) -> StagedMessage, "small"), (large, "large")] {
        for (place, abuse) in ABUSES.into_iter().enumerate() {
            let key = format!("{kind} {place}");
            let (outbox, mut txn) = claimed(&stage, &key).await;
            for part in abuse.split("; ") {
                let _ = stage.execute(&mut txn, part).await;
            }
            stage.store.stage(&mut txn, outbox, vec![form(abuse)], Vec::new());
            stage.commit_ended(txn, abuse).await;
            assert_eq!(texts(&all(&stage.store, outbox).await), [""; 0], "{kind}, {abuse}");
        }
    }
    stage.process("after").await;
}

/// Ten thousand messages of one transaction, in their order.
pub async fn ten_thousand_messages_are_staged_in_order<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (outbox, mut txn) = claimed(&stage, "a").await;
    let expected: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    stage.store.stage(&mut txn, outbox, expected.iter().map(|text| message(text)).collect(), Vec::new());
    committed(stage.commit(txn).await);
    assert_eq!(texts(&all(&stage.store, outbox).await), expected);
}

/// A read brings a part of what waits if that is large, at least one message, and says that there are more. Headers count as
/// payloads do.
pub async fn a_read_of_the_outbox_brings_some_bytes_at_once<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (outbox, mut txn) = claimed(&stage, "a").await;
    let outgoing = |name: &str| Outgoing::new("orders", "{}").key("k").header(name, vec![b'x'; 10_000]);
    let messages = ["one", "two", "three"].map(|name| StagedMessage::new(Uuid::new_v4(), outgoing(name)));
    stage.store.stage(&mut txn, outbox, messages.into(), Vec::new());
    committed(stage.commit(txn).await);
    for (bytes, found, is_cut) in [(100, 1, true), (25_000, 2, true), (100_000, 3, false)] {
        let read = OutboxRead { limit: 10, bytes, ..OutboxRead::ALL };
        let read = stage.store.read_outbox(outbox, &read).await.unwrap();
        assert_eq!((read.rows.len(), read.is_cut), (found, is_cut), "{bytes}");
    }
}

/// A read leaves out what it is told to, or brings only that, in the order of the ids and within its bounds.
pub async fn a_read_of_the_outbox_brings_what_its_filter_says<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (outbox, mut txn) = claimed(&stage, "a").await;
    let messages = [("a", Some("k")), ("a", None), ("b", None), ("b", Some("l")), ("a", Some("l"))];
    let outgoing = messages.map(|(to, key)| {
        let message = Outgoing::new(to, "");
        StagedMessage::new(Uuid::new_v4(), key.map_or(message.clone(), |key| message.key(key)))
    });
    stage.store.stage(&mut txn, outbox, outgoing.into(), Vec::new());
    committed(stage.commit(txn).await);
    let ids: Vec<i64> = all(&stage.store, outbox).await.iter().map(|row| row.id).collect();
    let read = async |read: OutboxRead| {
        let found = stage.store.read_outbox(outbox, &read).await.unwrap();
        let place = |id: i64| ids.iter().position(|other| *other == id).unwrap();
        (found.rows.iter().map(|row| place(row.id)).collect::<Vec<_>>(), found.is_cut)
    };
    let keys = vec![idem_core::Key::of("l").unwrap()];
    let except = OutboxFilter::Except { keys: keys.clone(), destinations: vec!["a".to_owned()] };
    let of = |filter| OutboxRead { filter, ..OutboxRead::ALL };
    assert_eq!(read(of(except)).await, (vec![0, 2], false), "of a destination only those without a key are left out");
    assert_eq!(read(of(OutboxFilter::Keys(keys))).await.0, [3, 4]);
    assert_eq!(read(of(OutboxFilter::Destination("a".to_owned()))).await.0, [1]);
    assert_eq!(read(of(OutboxFilter::Ids(vec![ids[3], ids[0], i64::MAX]))).await.0, [0, 3]);
    assert_eq!(read(OutboxRead { known: ids[1..3].to_vec(), ..OutboxRead::ALL }).await.0, [0, 3, 4]);
    assert_eq!(read(OutboxRead { from: ids[1], to: ids[3], ..OutboxRead::ALL }).await, (vec![1, 2, 3], false));
    assert_eq!(read(OutboxRead { limit: 2, ..OutboxRead::ALL }).await, (vec![0, 1], true));
}

/// A mark has a higher number than those before, and names the highest id at least; unless ids are in the order of commits.
pub async fn a_mark_of_the_outbox_is_above_all_before_it<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (outbox, mut txn) = claimed(&stage, "a").await;
    stage.store.stage(&mut txn, outbox, vec![message("a")], Vec::new());
    committed(stage.commit(txn).await);
    let marks = async || {
        let read = OutboxRead { marks: true, ..OutboxRead::ALL };
        let found = stage.store.read_outbox(outbox, &read).await.unwrap();
        (found.mark.unwrap(), found.snapshot, found.rows.last().unwrap().id)
    };
    let (first, (second, snapshot, last)) = (marks().await, marks().await);
    assert!(second.highest >= last, "{second:?}, {last}");
    if let Some(snapshot) = snapshot {
        assert!(second.number > first.0.number && snapshot.end > first.0.number, "{snapshot:?}, {first:?}, {second:?}");
        assert_eq!(Some(snapshot.table), first.1.map(|snapshot| snapshot.table));
    }
}

/// Until a relay has shown that it runs. Without messages, nobody has to look.
pub async fn an_outbox_that_no_relay_looks_at_is_found<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (outbox, mut txn) = claimed(&stage, "a").await;
    stage.store.stage(&mut txn, outbox, ["one", "two", "three"].map(message).into(), Vec::new());
    committed(stage.commit(txn).await);
    let shipping = stage.store.register_outbox("shipping").await.unwrap();
    let (messages, earlier) = (stage.world.own("outbox_messages"), W::earlier("created_at", Duration::from_secs(100)));
    stage.world.run(&format!("UPDATE {messages} SET created_at = {earlier}")).await;
    let unread = async |seconds| {
        let found = stage.store.unread_outboxes(Duration::from_secs(seconds), 2).await.unwrap();
        found.into_iter().map(|unread| (unread.name, unread.waiting)).collect::<Vec<_>>()
    };
    let billing = [("billing".to_owned(), 2)];
    assert_eq!((unread(60).await, unread(600).await), (billing.to_vec(), vec![]));
    assert_eq!(stage.store.outbox_stats(outbox, 0).await.unwrap(), idem_core::store::OutboxStats::default());
    stage.store.lease_outbox(shipping, Uuid::new_v4(), LeaseRequest::Show).await.unwrap();
    assert_eq!(unread(60).await, billing);
    stage.store.lease_outbox(outbox, Uuid::new_v4(), LeaseRequest::Show).await.unwrap();
    assert!(unread(60).await.is_empty());
    let stats = stage.store.outbox_stats(outbox, 100).await.unwrap();
    assert!(stats.waiting == 3 && stats.relay_seen.is_some_and(|seen| seen.as_secs() < 60), "{stats:?}");
}
