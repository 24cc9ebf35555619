//! What other programs, handlers and clocks leave in DynamoDB.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_sdk_dynamodb::types::AttributeValue;
use idem_core::key_value::{Acquired, Completed, Held, Id, KeyValueStore, Letter, LetterFilter, Resolve};
use idem_core::store::StoreError;
use idem_core::{Delivery, Fingerprint, Key, Reason};
use idem_dynamodb::{DynamoWrites, Item, Value};
use uuid::Uuid;

use crate::common::{self, COUNTERS, World, counter, id, record, unique};

const LEASE: Duration = Duration::from_secs(60);
const KEEP: Duration = Duration::from_secs(600);

async fn acquire(world: &World, id: &Id, token: Uuid) -> Result<Acquired, StoreError> {
    world.dynamodb.store().acquire(id, Fingerprint::of(b"{}"), token, LEASE, KEEP).await
}

async fn complete(world: &World, id: &Id, token: Uuid, writes: &DynamoWrites) -> Completed {
    world.dynamodb.store().complete(id, token, KEEP, writes).await.unwrap()
}

fn letter(id: &Id, bytes: usize) -> Letter {
    let delivery = Delivery::new("orders", vec![b'x'; bytes]);
    Letter::new(id.clone(), Fingerprint::of(b"{}"), Reason::Exhausted, "no", 3, SystemTime::now(), delivery)
}

/// Sets an attribute of a record as somebody else does.
async fn set(world: &World, id: &Id, name: &str, value: AttributeValue) {
    let update = world.client.update_item().table_name(&world.table).key("pk", record(id));
    let update = update.update_expression("SET #name = :value").expression_attribute_names("#name", name);
    update.expression_attribute_values(":value", value).send().await.unwrap();
}

fn seconds(from_now: i64) -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap() + from_now
}

fn number(item: &HashMap<String, AttributeValue>, name: &str) -> i64 {
    item[name].as_n().unwrap().parse().unwrap()
}

#[tokio::test]
async fn an_item_of_another_program_refuses_its_message_and_stays() {
    let Some(world) = common::world().await else { return };
    let id = id();
    set(&world, &id, "state", AttributeValue::S("theirs".to_owned())).await;
    let refused = acquire(&world, &id, Uuid::new_v4()).await;
    assert!(matches!(refused, Err(StoreError::Message(_))), "{refused:?}");
    assert_eq!(world.record(&id).await["state"], AttributeValue::S("theirs".to_owned()));
}

#[tokio::test]
async fn each_write_does_what_its_name_says() {
    let Some(world) = common::world().await else { return };
    let (id, token, name) = (id(), Uuid::new_v4(), unique("n"));
    let item = |what: &str| counter(&format!("{name} \n{what}"));
    let mut writes = DynamoWrites::default();
    writes.put(item("old"), [("n", 1)]);
    writes.put(item("gone"), [("n", 1)]);
    acquire(&world, &id, token).await.unwrap();
    assert_eq!(complete(&world, &id, token, &writes).await, Completed::Yes);

    let (id, mut writes) = (common::id(), DynamoWrites::default());
    let values = [
        ("words", Value::from("t")),
        ("bytes", (&b"\0\xff"[..]).into()),
        ("is", true.into()),
        ("half", Value::from(0.5)),
    ];
    writes.put(item("new"), values).only_if("attribute_not_exists(words)");
    writes
        .update(item("old"), "SET #n = #n + :n")
        .name_of("#n", "n")
        .value(":n", 6)
        .only_if("#n = :one")
        .value(":one", 1);
    writes.delete(item("gone")).only_if("attribute_exists(n)");
    writes.condition(item("none"), "attribute_not_exists(n)");
    acquire(&world, &id, token).await.unwrap();
    assert_eq!(complete(&world, &id, token, &writes).await, Completed::Yes);
    let read = async |what: &str| world.read(&format!("{name} \n{what}")).await;
    let new = read("new").await.unwrap();
    assert_eq!((new["words"].as_s().unwrap().as_str(), new["bytes"].as_b().unwrap().as_ref()), ("t", &b"\0\xff"[..]));
    assert_eq!((new["is"].as_bool().unwrap(), new["half"].as_n().unwrap().as_str()), (&true, "0.5"));
    assert_eq!(number(&read("old").await.unwrap(), "n"), 7);
    assert!(read("gone").await.is_none() && read("none").await.is_none());
}

#[tokio::test]
async fn a_condition_that_fails_names_its_write_and_nothing_is_written() {
    let Some(world) = common::world().await else { return };
    let (id, token, name) = (id(), Uuid::new_v4(), unique("n"));
    acquire(&world, &id, token).await.unwrap();
    let mut writes = DynamoWrites::default();
    writes.update(counter(&name), "ADD n :n").value(":n", 1);
    writes.condition(counter(&unique("none")), "attribute_exists(n)");
    let refused = complete(&world, &id, token, &writes).await;
    let Completed::Refused(why) = refused else { panic!("{refused:?}") };
    assert!(
        why.contains("write 2, a condition on the table") && why.contains(COUNTERS) && !why.contains(&name),
        "{why}"
    );
    assert!(world.read(&name).await.is_none());
    assert_eq!(world.dynamodb.store().renew(&id, token, LEASE).await.unwrap(), Held::Yes);
}

#[tokio::test]
async fn writes_that_can_never_be_applied_are_refused() {
    let Some(world) = common::world().await else { return };
    let (id, token, name) = (id(), Uuid::new_v4(), unique("n"));
    acquire(&world, &id, token).await.unwrap();
    let [mut twice, mut own, mut large, mut missing, mut wrong] = [0; 5].map(|_| DynamoWrites::default());
    twice.update(counter(&name), "ADD n :n").value(":n", 1);
    twice.delete(counter(&name));
    own.delete(Item::of(&world.table, "pk", "billing/paid/e-1"));
    large.put(counter(&name), [("text", "x".repeat(400 * 1024))]);
    missing.delete(Item::of(unique("missing"), "id", 1));
    wrong.update(counter(&name), "NO EXPRESSION");
    let before = world.dynamodb.store().write_units();
    for (writes, text) in [(twice, "write 1"), (own, "idem's records")] {
        let refused = complete(&world, &id, token, &writes).await;
        assert!(matches!(&refused, Completed::Refused(why) if why.contains(text)), "{refused:?}");
    }
    assert_eq!(world.dynamodb.store().write_units(), before, "they were not sent");
    for (writes, text) in [(large, "size"), (missing, "ResourceNotFound"), (wrong, "ValidationException")] {
        let refused = complete(&world, &id, token, &writes).await;
        assert!(matches!(&refused, Completed::Refused(why) if why.contains(text)), "{text}: {refused:?}");
    }
    assert!(world.read(&name).await.is_none());
    assert_eq!(complete(&world, &id, token, &DynamoWrites::default()).await, Completed::Yes);
}

/// How many items the table of the records has.
async fn items(world: &World) -> usize {
    let (mut items, mut from) = (0, None);
    loop {
        let page = world.client.scan().table_name(&world.table).set_exclusive_start_key(from).send().await.unwrap();
        items += page.items().len();
        from = page.last_evaluated_key.filter(|next| !next.is_empty());
        if from.is_none() {
            return items;
        }
    }
}

#[tokio::test]
async fn a_dead_letter_that_no_item_takes_is_divided_and_ends_whole() {
    let Some(world) = common::world().await else { return };
    let (store, id, token) = (world.dynamodb.store(), id(), Uuid::new_v4());
    let lengths = async || {
        let letters = store.dead(&LetterFilter::new()).await.unwrap();
        letters.iter().map(|letter| letter.delivery.payload().len()).collect::<Vec<_>>()
    };
    acquire(&world, &id, token).await.unwrap();
    let large = letter(&id, 1_000_000);
    // In base64 it has 1.3 MB.
    for _ in 0..2 {
        assert_eq!(store.bury(&id, token, &large).await.unwrap(), Held::Yes);
        assert_eq!((lengths().await, items(&world).await), (vec![1_000_000], 11));
    }
    assert_eq!(store.bury(&id, Uuid::new_v4(), &letter(&id, 10)).await.unwrap(), Held::Lost);
    // It is published again, and fails again.
    assert!(store.resolve(&id, Resolve::Replay, KEEP).await.unwrap());
    assert_eq!((lengths().await, items(&world).await), (vec![1_000_000], 11));
    acquire(&world, &id, token).await.unwrap();
    assert_eq!(store.bury(&id, token, &letter(&id, 500_000)).await.unwrap(), Held::Yes);
    assert_eq!((lengths().await, items(&world).await), (vec![500_000], 6));
    // Then it is processed, with a write or without one.
    for n in 0..2 {
        assert!(store.resolve(&id, Resolve::Replay, KEEP).await.unwrap());
        acquire(&world, &id, token).await.unwrap();
        let (name, mut writes) = (unique("n"), DynamoWrites::default());
        if n == 1 {
            writes.update(counter(&name), "ADD n :n").value(":n", 1);
        }
        assert_eq!(complete(&world, &id, token, &writes).await, Completed::Yes);
        assert_eq!((lengths().await, items(&world).await), (vec![], 1));
        assert_eq!(world.read(&name).await.is_some(), n == 1);
        let old = AttributeValue::N(seconds(-1).to_string());
        set(&world, &id, "ttl", old).await;
        acquire(&world, &id, token).await.unwrap();
        assert_eq!(store.bury(&id, token, &large).await.unwrap(), Held::Yes);
    }
    assert!(store.resolve(&id, Resolve::Discard, KEEP).await.unwrap());
    assert_eq!((lengths().await, items(&world).await), (vec![], 1));
    assert!(!store.resolve(&id, Resolve::Discard, KEEP).await.unwrap());
}

/// A run that takes longer than the retention.
#[tokio::test]
async fn a_renewal_keeps_the_record() {
    let Some(world) = common::world().await else { return };
    let (store, id, token) = (world.dynamodb.store(), id(), Uuid::new_v4());
    acquire(&world, &id, token).await.unwrap();
    assert_eq!(store.renew(&id, token, LEASE).await.unwrap(), Held::Yes);
    let ends = number(&world.record(&id).await, "ttl");
    assert!((seconds(590)..=seconds(601)).contains(&ends), "the record outlives its lease: {ends}");
    assert_eq!(store.renew(&id, token, 2 * KEEP).await.unwrap(), Held::Yes);
    let ends = number(&world.record(&id).await, "ttl");
    assert!(ends > seconds(2300), "and the lease does not outlive the record: {ends}");
}

#[tokio::test]
async fn a_dead_letter_has_no_end_and_is_listed_until_it_is_resolved() {
    let Some(world) = common::world().await else { return };
    let (store, token) = (world.dynamodb.store(), Uuid::new_v4());
    for key in ["e-1", "e-2", "e-3"] {
        let id = Id { key: Key::of(key).unwrap(), ..id() };
        acquire(&world, &id, token).await.unwrap();
        store.bury(&id, token, &letter(&id, 10)).await.unwrap();
        assert!(!world.record(&id).await.contains_key("ttl"));
    }
    assert_eq!(store.dead(&LetterFilter::new()).await.unwrap().len(), 3);
    assert_eq!(store.dead(&LetterFilter::new().limit(2)).await.unwrap().len(), 2);
}

/// Whatever its runs do, DynamoDB must not delete the only copy of a message.
#[tokio::test]
async fn a_replayed_record_has_no_end_until_its_message_is_completed() {
    let Some(world) = common::world().await else { return };
    let (store, id, token) = (world.dynamodb.store(), id(), Uuid::new_v4());
    acquire(&world, &id, token).await.unwrap();
    store.bury(&id, token, &letter(&id, 10)).await.unwrap();
    let is_kept = async || {
        let record = world.record(&id).await;
        let listed = store.dead(&LetterFilter::new()).await.unwrap().len();
        !record.contains_key("ttl") && record.contains_key("letter") && listed == 1
    };
    for _ in 0..2 {
        assert!(store.resolve(&id, Resolve::Replay, KEEP).await.unwrap());
        assert!(is_kept().await);
        let acquired = acquire(&world, &id, token).await;
        assert!(matches!(acquired, Ok(Acquired::New { starts: 1, .. })), "{acquired:?}");
        assert_eq!(store.renew(&id, token, 2 * KEEP).await.unwrap(), Held::Yes);
        assert!(is_kept().await);
        assert_eq!(store.release(&id, token).await.unwrap(), Held::Yes);
        assert!(is_kept().await);
    }
    acquire(&world, &id, token).await.unwrap();
    assert_eq!(complete(&world, &id, token, &DynamoWrites::default()).await, Completed::Yes);
    let record = world.record(&id).await;
    assert!(record.contains_key("ttl") && !record.contains_key("letter") && !record.contains_key("dead"));
    assert!(!store.resolve(&id, Resolve::Replay, KEEP).await.unwrap());
}

/// A process whose clock is an hour behind looks dead at once, and writes nothing behind the one that takes over.
#[tokio::test]
async fn a_clock_that_is_off_costs_a_second_run_and_no_second_write() {
    let Some(world) = common::world().await else { return };
    let (id, name, [behind, other]) = (id(), unique("n"), [Uuid::new_v4(), Uuid::new_v4()]);
    let mut writes = DynamoWrites::default();
    writes.update(counter(&name), "ADD n :n").value(":n", 1);
    acquire(&world, &id, behind).await.unwrap();
    set(&world, &id, "until", AttributeValue::N((seconds(-3600) * 1000).to_string())).await;
    let taken = acquire(&world, &id, other).await;
    assert!(matches!(taken, Ok(Acquired::New { starts: 2, .. })), "{taken:?}");
    assert_eq!(complete(&world, &id, behind, &writes).await, Completed::Lost);
    assert_eq!(complete(&world, &id, other, &writes).await, Completed::Yes);
    assert_eq!(complete(&world, &id, behind, &writes).await, Completed::Lost);
    assert_eq!(number(&world.read(&name).await.unwrap(), "n"), 1);
}
