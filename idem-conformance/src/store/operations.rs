//! Changes that operators make: of many rows at once, each noted with who has made it.

use std::time::Duration;

use idem_core::store::{
    By, ClaimState, Consumers, Identity, InboxRows, LeaseRequest, NewRow, Of, OutboxRows, Page, PublishFailure,
    Question, Replay, Replayed, Resolution, RowKind, Transactions, Value,
};
use idem_core::{Delivery, Fingerprint, Key, Outgoing, Reason, StagedMessage};
use uuid::Uuid;

use super::outbox::{all, of_row};
use super::stage::{Stage, committed, register};
use super::world::{Setup, World};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Stores so many dead letters in one transaction, and returns their ids.
async fn dead_letters<W: World>(stage: &Stage<W>, count: usize) -> Vec<i64> {
    let identities: Vec<Identity> = (0..count).map(|n| stage.id(&format!("{n:03}"))).collect();
    let delivery = Delivery::new("orders", "payload");
    let mut txn = stage.begin().await;
    stage.store.claim(&mut txn, &identities.iter().collect::<Vec<_>>(), ClaimState::Waiting).await.unwrap();
    let dead = |identity| NewRow::new(identity, &delivery, Err(Reason::Exhausted));
    let rows: Vec<NewRow<'_>> = identities.iter().map(dead).collect();
    let ids = stage.store.insert(&mut txn, &rows).await.unwrap();
    committed(stage.commit(txn).await);
    ids
}

/// How many operations there are for which this condition holds.
async fn operations<W: World>(stage: &Stage<W>, which: &str) -> i64 {
    stage.world.number(&format!("SELECT count(*) FROM {} WHERE {which}", stage.world.own("operations"))).await
}

/// How many inbox rows there are for which this condition holds.
async fn rows<W: World>(stage: &Stage<W>, which: &str) -> i64 {
    stage.world.number(&format!("SELECT count(*) FROM {} WHERE {which}", stage.world.own("inbox_messages"))).await
}

/// Whatever state and consumer they are of; missing ones are left out.
pub async fn rows_come_in_the_order_of_their_ids<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let dead = stage.dead_letter("dead", Reason::Permanent).await;
    stage.schedule("scheduled").await;
    let scheduled = stage.one_scheduled().await.id;
    let elsewhere = register(&stage.store, "shipping", "order_paid").await;
    stage.row(&Identity { handler: elsewhere, ..stage.id("elsewhere") }, true, Ok(Duration::ZERO)).await;
    let ids = [scheduled + 1, i64::MAX, dead, -1, scheduled];
    let found = stage.store.rows(&ids).await.unwrap();
    assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), [scheduled + 1, dead, scheduled]);
    assert_eq!((found[0].handler.as_str(), found[1].reason), ("order_paid", Some(Reason::Permanent)));
    assert!(stage.store.rows(&[]).await.unwrap().is_empty());
}

/// One answer for each id, in their order; and what each row was is noted.
pub async fn a_replay_of_many_changes_each_once<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let [a, b] = [stage.dead_letter("a", Reason::Exhausted).await, stage.dead_letter("b", Reason::Permanent).await];
    let inbox = stage.world.own("inbox_messages");
    stage.world.run(&format!("UPDATE {inbox} SET attempts = 5 WHERE id = {a}")).await;
    stage.schedule("scheduled").await;
    let scheduled = stage.one_scheduled().await.id;
    let (ids, by) = ([b, scheduled, a, i64::MAX, a], By::new("anna"));
    let replayed = stage.store.replay(Of::all(&ids), Replay::Plain, &by).await.unwrap();
    let expected = [(b, Replayed::Due), (scheduled, Replayed::NotFound), (a, Replayed::Due)];
    assert_eq!(replayed[..3], expected);
    assert_eq!(replayed[3..], [(i64::MAX, Replayed::NotFound), (a, Replayed::NotFound)], "each once");
    assert_eq!((stage.scheduled().await.len(), stage.dead().await.len()), (3, 0));

    let handler = stage.handler.0;
    let noted = format!("action = 'replayed' AND actor = 'anna' AND handler_id = {handler} AND length(key) = 1");
    assert_eq!(operations(&stage, &noted).await, 2);
    for was in [
        format!("row_id = {a} AND reason = 'exhausted' AND attempts = 5 AND error = 'first'"),
        format!("row_id = {b} AND reason = 'permanent' AND attempts = 0 AND outbox_id IS NULL"),
    ] {
        assert_eq!(operations(&stage, &was).await, 1, "{was}");
    }
    let commands = format!("SELECT count(DISTINCT command) FROM {}", stage.world.own("operations"));
    assert_eq!(stage.world.number(&commands).await, 1);
    // Another command of the same person.
    assert!(stage.store.replay(Of::all(&[]), Replay::Plain, &by).await.unwrap().is_empty());
    let c = stage.dead_letter("c", Reason::Permanent).await;
    assert_eq!(stage.replay(c, Replay::Forced).await, Replayed::Due);
    assert_eq!(stage.world.number(&commands).await, 2);
    assert_eq!(operations(&stage, "action = 'replayed by force'").await, 1);
}

/// They stay as they are, and nothing is noted of them.
pub async fn a_replay_leaves_what_needs_force_a_key_or_a_resolution<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut expected = Vec::new();
    for (reason, answer) in [
        (Reason::Committed, Replayed::NeedsForce),
        (Reason::TooOld, Replayed::NeedsForce),
        (Reason::Unresolved, Replayed::Unresolved),
        (Reason::Exhausted, Replayed::Due),
    ] {
        expected.push((stage.dead_letter(reason.as_str(), reason).await, answer));
    }
    stage.process("a").await;
    expected.push((stage.conflict("a", "another").await, Replayed::NeedsKey));
    let ids: Vec<i64> = expected.iter().map(|(id, _)| *id).collect();
    let by = By::new("anna");
    let elsewhere = stage.store.replay(Of::consumer("shipping", &ids), Replay::Forced, &by).await.unwrap();
    assert!(elsewhere.iter().all(|(_, replayed)| *replayed == Replayed::NotFound), "{elsewhere:?}");
    let replayed = stage.store.replay(Of::consumer("billing", &ids), Replay::Plain, &by).await.unwrap();
    assert_eq!(replayed, expected);
    assert_eq!((stage.dead().await.len(), operations(&stage, "true").await), (4, 1));
}

/// Whichever comes first: the other one finds the rest.
pub async fn two_operators_replay_each_row_once<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = stage.world.store(Setup::default()).await.unwrap();
    let ids = dead_letters(&stage, 200).await;
    let backwards: Vec<i64> = ids.iter().rev().copied().collect();
    let (anna, ben) = (By::new("anna"), By::new("ben"));
    let (one, two) = tokio::join!(
        async {
            let mut due = 0;
            for ids in ids.chunks(20) {
                due += count_due(&stage.store.replay(Of::all(ids), Replay::Plain, &anna).await.unwrap());
            }
            due
        },
        async {
            let mut due = 0;
            for ids in backwards.chunks(20) {
                due += count_due(&other.replay(Of::all(ids), Replay::Plain, &ben).await.unwrap());
            }
            due
        }
    );
    // Those that one has locked while the other looked are left, and found later.
    let rest = count_due(&stage.store.replay(Of::all(&ids), Replay::Plain, &anna).await.unwrap());
    assert_eq!((one + two + rest, operations(&stage, "true").await), (200, 200));
    assert_eq!(rows(&stage, "state = 'scheduled'").await, 200);
}

fn count_due(replayed: &[(i64, Replayed)]) -> usize {
    replayed.iter().filter(|(_, replayed)| *replayed == Replayed::Due).count()
}

/// Another operator has it, and the others need not wait.
pub async fn an_operator_skips_a_row_that_another_one_has<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    let ids = dead_letters(&stage, 2).await;
    let mut txn = stage.begin().await;
    let lock = format!("SELECT 1 FROM {} WHERE id = {} FOR UPDATE", stage.world.own("inbox_messages"), ids[0]);
    stage.execute(&mut txn, &lock).await.unwrap();
    let by = By::new("anna");
    let replayed = stage.store.replay(Of::all(&ids), Replay::Plain, &by).await.unwrap();
    assert_eq!(replayed, [(ids[0], Replayed::NotFound), (ids[1], Replayed::Due)]);
    assert!(stage.store.resolve(Of::all(&ids), None, &Resolution::Discard, &by).await.unwrap().is_empty());
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(stage.store.resolve(Of::all(&ids), None, &Resolution::Discard, &by).await.unwrap(), [ids[0]]);
}

/// They go back through decode and key. The claim of the key stays, since it belongs to another message.
pub async fn new_keys_take_the_key_of_conflicts_alone<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let conflict = stage.conflict("a", "another").await;
    let exhausted = stage.dead_letter("b", Reason::Exhausted).await;
    let too_old = stage.dead_letter("c", Reason::TooOld).await;
    let (ids, by) = ([conflict, exhausted, too_old], By::new("anna"));
    let replayed = stage.store.replay(Of::all(&ids), Replay::NewKeys, &by).await.unwrap();
    assert_eq!(
        replayed.iter().map(|(_, replayed)| *replayed).collect::<Vec<_>>(),
        [Replayed::Due, Replayed::Due, Replayed::NeedsForce]
    );
    let found = stage.store.rows(&ids).await.unwrap();
    assert_eq!((found[0].identity.key.clone(), found[0].reason), (Key::empty(), None));
    assert_eq!(found[1].identity, stage.id("b"));
    assert_eq!(stage.existing_claim("a").await.unwrap().fingerprint, Fingerprint::of(b"a"));
    assert!(stage.is_dated("a").await && stage.is_waiting("b").await);
    assert_eq!(stage.fetch(RowKind::Ordinary).await.len(), 2);
    let noted = "action = 'replayed for new keys' AND reason = 'conflict' AND length(key) = 1";
    assert_eq!(operations(&stage, noted).await, 1, "it is found by the key that it had");
}

/// With its key, the key of its call would be gone, by which the provider knows it.
pub async fn new_keys_leave_calls<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let (identity, delivery) = (stage.message("a", "another"), Delivery::new("orders", "payload"));
    let mut txn = stage.begin().await;
    let row = NewRow::new(&identity, &delivery, Err(Reason::Conflict)).with_call(Uuid::new_v4());
    let id = stage.store.insert(&mut txn, &[row]).await.unwrap()[0];
    committed(stage.commit(txn).await);
    assert_eq!(stage.replay(id, Replay::NewKeys).await, Replayed::NeedsKey);
    assert_eq!(stage.one_dead().await.identity, identity);
    assert_eq!(stage.replay(id, Replay::As(&Key::of("a-2").unwrap())).await, Replayed::Due);
}

/// One event that was sent under two keys: no index refuses the rows.
pub async fn two_conflicts_of_one_payload_lose_their_keys_together<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut ids = Vec::new();
    for key in ["a", "b"] {
        stage.process(key).await;
        ids.push(stage.conflict(key, "the same").await);
    }
    let replayed = stage.store.replay(Of::all(&ids), Replay::NewKeys, &By::new("anna")).await.unwrap();
    assert_eq!(count_due(&replayed), 2);
    assert_eq!(rows(&stage, "length(key) = 0 AND state = 'scheduled'").await, 2);
}

/// Under another key there is one row only: two would have one claim.
pub async fn a_replay_under_another_key_takes_the_first_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut ids = Vec::new();
    for key in ["a", "b"] {
        stage.process(key).await;
        ids.push(stage.conflict(key, "another").await);
    }
    let (key, by) = (Key::of("c").unwrap(), By::new("anna"));
    let replayed = stage.store.replay(Of::all(&ids), Replay::As(&key), &by).await.unwrap();
    assert_eq!(replayed, [(ids[0], Replayed::Due), (ids[1], Replayed::NotFound)]);
    assert_eq!(stage.one_dead().await.id, ids[1]);
    assert_eq!(operations(&stage, "action LIKE 'replayed under the key %'").await, 1);
}

/// Otherwise nobody would know who has done it.
pub async fn a_change_and_its_operation_commit_together<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", Reason::Exhausted).await;
    stage.world.run(&stage.world.refuse("INSERT", "operations", None)).await;
    let (ids, by) = ([id], By::new("anna"));
    stage.store.replay(Of::all(&ids), Replay::Plain, &by).await.unwrap_err();
    stage.store.resolve(Of::all(&ids), None, &Resolution::Discard, &by).await.unwrap_err();
    assert_eq!(stage.one_dead().await.id, id);
    assert!(stage.is_waiting("a").await);
    stage.world.run(&stage.world.allow("operations")).await;
    assert!(stage.discard(id).await && stage.is_dated("a").await);
    assert_eq!(operations(&stage, "action = 'discarded'").await, 1);
}

/// Those of a conflict and of a message without a key belong to nobody here.
pub async fn discarding_many_dates_only_owned_claims<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut ids = dead_letters(&stage, 3).await;
    stage.schedule("waits").await;
    ids.push(stage.conflict("waits", "another").await);
    stage.row(&Identity { key: Key::empty(), ..stage.id("none") }, false, Err(Reason::Undecodable)).await;
    ids.push(stage.dead().await[0].id);
    let kept = stage.dead_letter("kept", Reason::Exhausted).await;
    let by = By::new("anna");
    let mut done = stage.store.resolve(Of::consumer("billing", &ids), None, &Resolution::Discard, &by).await.unwrap();
    done.sort_unstable();
    assert_eq!(done, ids);
    for key in ["000", "001", "002"] {
        assert!(stage.is_dated(key).await, "{key}");
    }
    assert!(stage.is_waiting("waits").await && stage.is_waiting("kept").await);
    assert_eq!((stage.one_dead().await.id, operations(&stage, "true").await), (kept, 5));
}

/// Under their ids, behind what waits, the oldest first; those of another outbox are left alone.
pub async fn an_operator_stages_dead_letters_again_in_their_order<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let outbox = stage.store.register_outbox("billing").await.unwrap();
    let other = stage.store.register_outbox("shipping").await.unwrap();
    let message = |text: &str| StagedMessage::new(Uuid::new_v4(), Outgoing::new("orders", text.to_owned()).key("k"));
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.store.stage(&mut txn, outbox, Vec::from(["one", "two", "three"].map(message)), Vec::new());
    committed(stage.commit(txn).await);
    let token = Uuid::new_v4();
    stage.store.lease_outbox(outbox, token, LeaseRequest::Hold(Duration::from_secs(60))).await.unwrap();
    let staged = all(&stage.store, outbox).await;
    let refused = |row| PublishFailure { row: of_row(row), attempts: 3, next: None, error: "refused".to_owned() };
    stage.store.record_failures(outbox, token, &staged.iter().map(refused).collect::<Vec<_>>()).await.unwrap();
    let dead = stage.store.dead_outgoing(outbox, Page::default()).await.unwrap();
    let ids: Vec<i64> = dead.iter().map(|dead| dead.id).collect();
    let [newest, middle, oldest] = ids[..] else { panic!("{dead:?}") };

    let by = By::new("anna");
    assert!(stage.store.remove_dead_outgoing(other, &ids, true, &by).await.unwrap().is_empty());
    let again = stage.store.remove_dead_outgoing(outbox, &[middle, i64::MAX, oldest], true, &by).await.unwrap();
    assert_eq!(again, [oldest, middle]);
    let found: Vec<Uuid> = all(&stage.store, outbox).await.iter().map(|row| row.message.id()).collect();
    assert_eq!(found, [dead[2].message.id(), dead[1].message.id()]);
    assert_eq!(stage.store.remove_dead_outgoing(outbox, &[newest], false, &by).await.unwrap(), [newest]);
    assert!(stage.store.dead_outgoing(outbox, Page::default()).await.unwrap().is_empty());
    assert_eq!(all(&stage.store, outbox).await.len(), 2);
    let noted = format!("outbox_id = {} AND handler_id IS NULL AND attempts = 3 AND error = 'refused'", outbox.number);
    assert_eq!(operations(&stage, &format!("{noted} AND action = 'staged again'")).await, 2);
    assert_eq!(operations(&stage, &format!("{noted} AND action = 'discarded' AND row_id = {newest}")).await, 1);
}

/// Operations for three months, and workers that have ended for a day.
pub async fn workers_and_operations_are_pruned_by_age<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for key in ["old", "new"] {
        let id = stage.dead_letter(key, Reason::Exhausted).await;
        assert_eq!(stage.replay(id, Replay::Plain).await, Replayed::Due);
        let beat = Question::new(
            "beat of a test",
            "INSERT INTO {schema}.workers (instance, kind, name, host, pid, version, started_at, report)
             VALUES ($1::uuid, 'worker', $2, 'here', 1, '1', now(), '{}') RETURNING '{}'",
            r#"INSERT INTO "idem_workers" (instance, kind, name, host, pid, version, started_at, report)
               VALUES (unhex(replace(?1, '-', '')), 'worker', ?2, 'here', 1, '1', {now}, '{}') RETURNING '{}'"#,
        );
        let values = [Value::from(Uuid::new_v4().to_string()), Value::from(key)];
        assert_eq!(stage.store.ask(&beat.writes(), &values).await.unwrap(), ["{}"]);
    }
    let (operations, workers) = (stage.world.own("operations"), stage.world.own("workers"));
    let old = format!(
        "UPDATE {operations} SET at = {} WHERE id = (SELECT min(id) FROM {operations})",
        W::earlier("at", DAY * 91)
    );
    stage.world.run(&old).await;
    stage
        .world
        .run(&format!("UPDATE {workers} SET seen_at = {} WHERE name = 'old'", W::earlier("seen_at", DAY * 2)))
        .await;
    let counts = async || {
        let of = async |table: &str| stage.world.number(&format!("SELECT count(*) FROM {table}")).await;
        (of(&operations).await, of(&workers).await)
    };
    assert_eq!(counts().await, (2, 2));
    stage.store.prune().await.unwrap();
    assert_eq!(counts().await, (1, 1));
    assert_eq!(stage.world.number(&format!("SELECT count(*) FROM {workers} WHERE name = 'new'")).await, 1);
}
