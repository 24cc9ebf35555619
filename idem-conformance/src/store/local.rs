//! Local messages: written by the commit, behind its guard, by the rules by which deliveries are stored.

use idem_core::store::{CommitResult, Identity, LocalMessage, OutboxId, OutboxRows, Row, Transactions};
use idem_core::{Delivery, Fingerprint, Key, Reason};
use uuid::Uuid;

use super::stage::{ABUSES, Stage, committed, settled};
use super::world::World;

/// The payload of a message with this text. Some are large.
type Form = fn(&str) -> String;

const FORMS: [(&str, Form); 2] = [("small", |text| text.to_owned()), ("large", |text| format!("{text:20000}"))];

/// Local messages are in no outbox.
const NO_OUTBOX: OutboxId = OutboxId { number: 0, namespace: Uuid::nil() };

/// A message under a key.
fn local<W: World>(stage: &Stage<W>, key: &str, payload: String) -> LocalMessage {
    let (handler, key) = (stage.handler, Key::of(key).unwrap());
    let identity = Identity { handler, key, fingerprint: Fingerprint::of(payload.as_bytes()) };
    let delivery = Delivery::new("local", payload).with_message_id(Some("m \' \\".to_owned()));
    LocalMessage { identity, delivery, provider_key: None }
}

/// A claimed transaction in which an effect was written.
async fn claimed<W: World>(stage: &Stage<W>, key: &str) -> <W::Store as Transactions>::Txn {
    let mut txn = stage.claimed(&stage.id(key)).await;
    stage.effect(&mut txn, key).await;
    txn
}

/// Rows as key and text, sorted.
fn shown(rows: &[Row]) -> Vec<String> {
    let text = |row: &Row| String::from_utf8_lossy(row.delivery.payload()).trim_end().to_owned();
    let mut shown: Vec<String> = rows.iter().map(|row| format!("{} {}", row.identity.key, text(row))).collect();
    shown.sort();
    shown
}

/// A new one is stored with its claim and is due now, a copy is skipped, and another message of its key is a conflict.
pub async fn local_messages_are_stored_as_deliveries_are<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (kind, form) in FORMS {
        stage.process(&format!("{kind} sender")).await;
        let of = |key: &str, text: &str| local(&stage, &format!("{kind} {key}"), form(text));
        let mut txn = claimed(&stage, &format!("{kind} 1")).await;
        stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), vec![of("a", "one"), of("a", "two"), of("b", "one")]);
        assert!(stage.scheduled().await.iter().all(|row| row.delivery.payload().is_empty()), "not before the commit");
        committed(stage.commit(txn).await);
        let row = stage.scheduled().await.pop().unwrap();
        assert_eq!((row.attempts, row.crash_count, row.deliveries, row.error.as_str()), (0, 0, 1, ""));
        assert_eq!((row.delivery.source(), row.delivery.message_id()), ("local", Some("m \' \\")));
        assert!(stage.is_waiting(&format!("{kind} a")).await && stage.is_waiting(&format!("{kind} b")).await);
        let mut txn = claimed(&stage, &format!("{kind} 2")).await;
        let again = vec![of("a", "one"), of("b", "three"), of("c", "one"), of("sender", "four")];
        stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), again);
        committed(stage.commit(txn).await);
        let expected = ["a one", "b one", "c one"].map(|it| format!("{kind} {it}"));
        assert_eq!(shown(&stage.scheduled().await), expected);
        let dead = stage.dead().await;
        assert_eq!(shown(&dead), ["a two", "b three", "sender four"].map(|it| format!("{kind} {it}")));
        assert!(dead.iter().all(|row| row.reason == Some(Reason::Conflict) && row.error.contains("--as")));
        assert!(stage.is_dated(&format!("{kind} sender")).await);
        let fetched = stage.fetch(idem_core::store::RowKind::Ordinary).await;
        assert_eq!(fetched.len(), 3);
        stage.world.run(&format!("DELETE FROM {}", stage.world.own("inbox_messages"))).await;
    }
}

/// As that of a delivery, it is stored with the message. One that does not run has none.
pub async fn a_local_message_has_the_key_of_its_call<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (kind, form) in FORMS {
        let keys = [Some(Uuid::new_v4()), None, Some(Uuid::new_v4())];
        let message = |(n, provider_key): (usize, &Option<Uuid>)| {
            // The last two have one key, so that one of them is a conflict.
            let message = local(&stage, &format!("{kind} {}", n.min(1)), form(&n.to_string()));
            LocalMessage { provider_key: *provider_key, ..message }
        };
        let mut txn = claimed(&stage, &format!("{kind} sender")).await;
        stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), keys.iter().enumerate().map(message).collect());
        committed(stage.commit(txn).await);
        let mut stored: Vec<_> = stage.scheduled().await.iter().map(|row| row.provider_key).collect();
        stored.sort_unstable();
        assert_eq!((stored, stage.one_dead().await.provider_key), (vec![None, keys[0]], None), "{kind}");
        stage.world.run(&format!("DELETE FROM {}", stage.world.own("inbox_messages"))).await;
    }
}

/// A rollback and a dropped transaction leave nothing.
pub async fn nothing_local_survives_a_transaction_that_is_rolled_back<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (_, form) in FORMS {
        let mut txn = claimed(&stage, "a").await;
        stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), vec![local(&stage, "l", form("rolled back"))]);
        stage.store.rollback(txn).await.unwrap();
        let mut txn = claimed(&stage, "a").await;
        stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), vec![local(&stage, "l", form("dropped"))]);
        drop(txn);
        stage.process("a after").await;
        assert!(stage.scheduled().await.is_empty() && stage.existing_claim("l").await.is_none());
        stage.world.run(&format!("DELETE FROM {}", stage.world.own("processed_messages"))).await;
    }
}

/// A handler that ends its transaction leaves none, whatever it has begun afterwards.
pub async fn nothing_local_survives_a_transaction_that_its_handler_ended<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (kind, form) in FORMS {
        for (place, abuse) in ABUSES.into_iter().enumerate() {
            let mut txn = claimed(&stage, &format!("{kind} {place}")).await;
            for part in abuse.split("; ") {
                let _ = stage.execute(&mut txn, part).await;
            }
            let key = format!("local {kind} {place}");
            stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), vec![local(&stage, &key, form(abuse))]);
            stage.commit_ended(txn, abuse).await;
            assert!(stage.scheduled().await.is_empty(), "{kind}, {abuse}");
            assert_eq!(stage.existing_claim(&key).await, None, "{kind}, {abuse}");
        }
    }
    stage.process("after").await;
}

/// It waits for another transaction that claims its key. If that commits, nothing is committed here, and a new transaction
/// finds the claim; if it rolls back, or holds the key for too long, nothing is lost either.
pub async fn a_local_message_waits_for_a_claim_that_is_not_committed<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    let retried = |done: &CommitResult| matches!(done, CommitResult::Retry(_));
    for (kind, form) in FORMS {
        for ends in ["commit", "roll back", "hold"] {
            let of = |text: &str| local(&stage, &format!("{kind} {ends}"), form(text));
            let first = stage.claimed(&of("same").identity).await;
            let mut txn = claimed(&stage, &format!("{kind} {ends} sender")).await;
            stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), vec![of("same")]);
            let store = stage.store.clone();
            let commit = tokio::spawn(async move { store.commit(txn).await });
            settled(async || stage.world.waiting().await.filter(|waiting| *waiting > 0)).await;
            match ends {
                "commit" => {
                    committed(stage.commit(first).await);
                    let done = commit.await.unwrap();
                    assert!(retried(&done), "{kind}: {done:?}");
                    assert_eq!(stage.existing_claim(&format!("{kind} {ends} sender")).await, None);
                    let mut txn = claimed(&stage, &format!("{kind} {ends} sender")).await;
                    stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), vec![of("same")]);
                    committed(stage.commit(txn).await);
                    assert!(stage.scheduled().await.is_empty(), "a duplicate");
                }
                "hold" => {
                    let done = commit.await.unwrap();
                    assert!(matches!(done, CommitResult::Busy(_)), "{kind}: {done:?}");
                    stage.store.rollback(first).await.unwrap();
                    assert_eq!(stage.existing_claim(&format!("{kind} {ends} sender")).await, None);
                }
                _ => {
                    stage.store.rollback(first).await.unwrap();
                    committed(commit.await.unwrap());
                    assert_eq!(stage.scheduled().await.len(), 1);
                    stage.world.run(&format!("DELETE FROM {}", stage.world.own("inbox_messages"))).await;
                }
            }
        }
    }
    assert!(stage.dead().await.is_empty());
}

/// What is deferred to the COMMIT, such as a foreign key, runs under the lock timeout that the handler has left, and not
/// under that of the claims.
pub async fn what_is_deferred_to_the_commit_waits_behind_local_messages<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    let (parents, children) = (stage.world.name("parents"), stage.world.name("children"));
    stage.world.run(&format!("CREATE TABLE {parents} (id INTEGER PRIMARY KEY)")).await;
    let references = format!("parent INTEGER NOT NULL REFERENCES {parents} (id) DEFERRABLE INITIALLY DEFERRED");
    stage.world.run(&format!("CREATE TABLE {children} ({references})")).await;
    stage.world.run(&format!("INSERT INTO {parents} (id) VALUES (1)")).await;
    for (kind, form) in FORMS {
        let mut other = stage.begin().await;
        stage.execute(&mut other, &format!("DELETE FROM {parents}")).await.unwrap();
        let mut txn = claimed(&stage, &format!("{kind} sender")).await;
        stage.execute(&mut txn, &format!("INSERT INTO {children} (parent) VALUES (1)")).await.unwrap();
        // So many that each of their claims waits for a tenth of a second.
        let messages = (0..10).map(|n| local(&stage, &format!("{kind} {n}"), form("x"))).collect();
        stage.store.stage(&mut txn, NO_OUTBOX, Vec::new(), messages);
        let store = stage.store.clone();
        let commit = tokio::spawn(async move { store.commit(txn).await });
        settled(async || stage.world.waiting().await.filter(|waiting| *waiting > 0)).await;
        // Several times that.
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        stage.store.rollback(other).await.unwrap();
        committed(commit.await.unwrap());
    }
    assert_eq!(stage.scheduled().await.len(), 2 * 10);
}
