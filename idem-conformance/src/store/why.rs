//! The operator's questions about one message, about handlers by their names, and about workers.

use std::time::Duration;

use idem_core::operator::{Asked, Compared, Count, Filter, Forgotten, Operator, Page, Verdict, Why};
use idem_core::store::{Consumers, HandlerMark, Identity, Question, Replayed, Value};
use idem_core::{Error, Fingerprint, Key, Reason};
use uuid::Uuid;

use super::filters::operator;
use super::stage::{Stage, committed, register};
use super::world::World;

const HOUR: Duration = Duration::from_secs(3600);
const MINUTE: Duration = Duration::from_secs(60);

async fn ask<W: World>(stage: &Stage<W>, key: &str) -> Why {
    operator(stage).why(&Asked::new("order_paid", key)).await.unwrap()
}

/// A message that is new, processed, scheduled or dead, what belongs to it, and nothing of another handler.
pub async fn why_reads_claim_rows_and_operations<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let shipped = register(&stage.store, "billing", "order_shipped").await;
    stage.row(&Identity { handler: shipped, ..stage.id("new") }, true, Ok(Duration::ZERO)).await;
    let new = ask(&stage, "new").await;
    assert_eq!((new.verdict, new.compared), (Verdict::WouldRun, Compared::NoClaim));
    assert!(new.claim.is_none() && new.rows.is_empty() && new.operations.is_empty());

    stage.process("done").await;
    stage.claims_earlier(HOUR).await;
    let done = ask(&stage, "done").await;
    let Verdict::Duplicate { age, discarded: false } = done.verdict else { panic!("{done:?}") };
    assert!((HOUR..2 * HOUR).contains(&age) && done.compared == Compared::NotGiven, "{done:?}");
    let claim = done.claim.unwrap();
    let (processed, forgotten) = (claim.processed_at.unwrap().0, claim.kept_until.unwrap().0);
    assert_eq!(forgotten.duration_since(processed).unwrap(), 7 * 24 * HOUR);
    assert_eq!(Fingerprint::of(b"done").as_bytes(), &hex(&claim.fingerprint)[..]);

    stage.schedule("waits").await;
    let row = stage.scheduled().await.iter().find(|row| row.identity == stage.id("waits")).unwrap().id;
    let waits = ask(&stage, "waits").await;
    assert_eq!(waits.verdict, Verdict::Waiting { row: Some(row), dead: false });
    assert_eq!((waits.rows.len(), waits.rows[0].id), (1, row));

    let dead = stage.dead_letter("dead", Reason::Exhausted).await;
    let conflict = stage.conflict("dead", "another").await;
    let shown = ask(&stage, "dead").await;
    assert_eq!(shown.verdict, Verdict::Waiting { row: Some(dead), dead: true });
    let rows: Vec<_> = shown.rows.iter().map(|row| (row.id, row.reason)).collect();
    assert_eq!(rows, [(dead, Some(Reason::Exhausted)), (conflict, Some(Reason::Conflict))], "its own row first");
    assert!(shown.hints.iter().any(|hint| hint.contains(&format!("the dead letter {conflict}"))), "{:?}", shown.hints);
    assert_eq!(shown.claim.map(|claim| claim.processed_at.is_some()), Some(false));
    assert!(shown.rows.iter().all(|row| row.died_at.is_some() && row.error == "first"));

    let anna = operator(&stage);
    assert_eq!(anna.replay(dead).await.unwrap(), Replayed::Due);
    assert!(anna.discard(conflict).await.unwrap());
    let after = ask(&stage, "dead").await;
    assert_eq!(after.verdict, Verdict::Waiting { row: Some(dead), dead: false });
    let [discarded, replayed] = &after.operations[..] else { panic!("{after:?}") };
    assert_eq!((discarded.action.as_str(), replayed.action.as_str()), ("discarded", "replayed"));
    for (operation, row, reason) in [(discarded, conflict, "conflict"), (replayed, dead, "exhausted")] {
        assert_eq!(
            (operation.actor.as_str(), operation.row, operation.key.as_deref()),
            ("anna", Some(row), Some("dead"))
        );
        assert_eq!(
            (operation.consumer.as_deref(), operation.handler.as_deref()),
            (Some("billing"), Some("order_paid"))
        );
        assert_eq!(
            (operation.error.as_deref(), operation.reason.as_ref().map(ToString::to_string)),
            (Some("first"), Some(reason.into()))
        );
    }
    assert_eq!(discarded.command, replayed.command, "one operator's value is one command");
}

fn hex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digits).collect()
}

/// A payload is compared as the worker compares it, by the default fingerprint; other fingerprints say so.
pub async fn why_compares_a_payload<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let anna = operator(&stage);
    let compare = async |asked: Asked| {
        let why = anna.why(&asked).await.unwrap();
        (why.compared, matches!(why.verdict, Verdict::Conflict { .. }))
    };
    let with = |key: &str, payload: &str| {
        let mut asked = Asked::new("order_paid", key);
        asked.payload = Some(payload.to_owned().into());
        asked
    };
    let event = |data: &str| {
        format!(
            r#"{{"specversion":"1.0","id":"1","source":"/shop","type":"t","datacontenttype":"text/plain","data":"{data}"}}"#
        )
    };
    assert_eq!(compare(Asked::new("order_paid", "a")).await, (Compared::NotGiven, false));
    assert_eq!(compare(with("a", "a")).await, (Compared::Equal, false));
    assert_eq!(compare(with("a", "b")).await, (Compared::Different, true));
    assert_eq!(compare(with("a", "")).await, (Compared::Different, true));
    assert_eq!(compare(with("a", &event("a"))).await, (Compared::Equal, false));
    assert_eq!(compare(with("a", &event("b"))).await, (Compared::Different, true));
    assert_eq!(compare(with("new", "a")).await, (Compared::NoClaim, false));

    // 18 bytes: the last two are the recipe. None at all: each message is a copy.
    for (key, fingerprint) in [("own", Fingerprint::stored(&[7; 18])), ("none", Fingerprint::none())] {
        let identity = Identity { fingerprint, ..stage.id(key) };
        committed(stage.commit(stage.claimed(&identity).await).await);
        assert_eq!(compare(with(key, "b")).await, (Compared::OwnFingerprint, false), "{key}");
    }
}

/// A handler that is keyed by the id of an entity has thousands of them.
pub async fn why_reads_the_newest_of_many_conflicts<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let dead = stage.dead_letter("a", Reason::Exhausted).await;
    let mut conflicts = Vec::new();
    for n in 0..25 {
        conflicts.push(stage.conflict("a", &format!("another {n}")).await);
    }
    let rows: Vec<_> = ask(&stage, "a").await.rows.iter().map(|row| row.id).collect();
    assert_eq!((rows.len(), rows[0], rows[1]), (20, dead, conflicts[24]), "its own row first");
    let anna = operator(&stage);
    let handler = anna.handler("order_paid").await.unwrap();
    let forgotten = anna.forget(&handler, &Key::of("a").unwrap()).await.unwrap();
    assert!(matches!(forgotten, Forgotten::InInbox(id) if id == dead), "{forgotten:?}");
}

/// A key is found as a log shows it, and as a person types it.
pub async fn why_finds_a_key_in_each_notation<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = Uuid::from_u128(0x9513_c1b4_5c2d_4d3c_8a55_4be7_d8a0_b1a2);
    let of = |parts: &[&dyn idem_core::KeyPart]| Key::composite(parts).unwrap();
    let keys = [
        (Key::of(&id).unwrap(), vec![id.to_string(), id.to_string().to_uppercase(), id.simple().to_string()]),
        (Key::of(&-7_i64).unwrap(), vec!["-7".to_owned(), "0x2d37".to_owned()]),
        (of(&[&"m1", &1_i64]), vec!["(m1, 1)".to_owned(), "m1,1".to_owned()]),
        (of(&[&id, &"b"]), vec![format!("({id}, b)"), format!("{id},b")]),
        (of(&[&"a, b", &"c"]), vec!["0x04612c20620163".to_owned()]),
        (Key::of("x,y").unwrap(), vec!["x,y".to_owned()]),
        (Key::of(&[0xff_u8, 0]).unwrap(), vec!["0xff00".to_owned()]),
        (Key::of("it's \"7\"").unwrap(), vec!["it's \"7\"".to_owned()]),
    ];
    for (key, texts) in &keys {
        committed(stage.commit(stage.claimed(&Identity { key: key.clone(), ..stage.id("any") }).await).await);
        for text in texts {
            let why = ask(&stage, text).await;
            assert!(matches!(why.verdict, Verdict::Duplicate { .. }), "{text}: {why:?}");
            assert_eq!(why.key, key.to_string(), "{text}: {why:?}");
        }
    }
    // The text of a UUID, which only a statement of the application's own writes.
    let text = Uuid::from_u128(7).to_string();
    let written = Identity { key: Key::stored(text.as_bytes()).unwrap(), ..stage.id("any") };
    committed(stage.commit(stage.claimed(&written).await).await);
    let why = ask(&stage, &text).await;
    assert!(matches!(why.verdict, Verdict::Duplicate { .. }), "{why:?}");
    for bad in ["", &"x".repeat(256)] {
        let refused = operator(&stage).why(&Asked::new("order_paid", bad)).await.unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused}");
    }
}

/// Somebody asks for the id of the entity, and the handler is keyed by that of the event.
pub async fn a_key_that_nobody_has_is_pointed_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = Uuid::from_u128(0x9513_c1b4_5c2d_4d3c_8a55_4be7_d8a0_b1a2);
    committed(stage.commit(stage.claimed(&Identity { key: Key::of(&id).unwrap(), ..stage.id("any") }).await).await);
    let odd = ask(&stage, "order-7").await;
    assert_eq!(odd.verdict, Verdict::WouldRun);
    assert!(odd.hints.iter().any(|hint| hint.contains(&id.to_string()) && hint.contains("order-7")), "{:?}", odd.hints);
    assert!(ask(&stage, &id.to_string()).await.hints.is_empty());
}

/// The clock of a database that took over may be behind, and that of a person as well.
pub async fn a_claim_from_the_future_is_explained<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let later = Question::new(
        "a claim from the future",
        "UPDATE {schema}.processed_messages SET processed_at = now() + interval '1 hour' RETURNING 'done'",
        "UPDATE \"idem_processed_messages\" SET processed_at = {now} + 3600000 RETURNING 'done'",
    );
    assert_eq!(stage.store.ask(&later.writes(), &[]).await.unwrap(), ["done"]);
    assert_eq!(ask(&stage, "a").await.verdict, Verdict::Duplicate { age: Duration::ZERO, discarded: false });
    operator(&stage).status(Count::AtLeast).await.unwrap();
}

/// It depends on the time of the message, which nobody has said.
pub async fn why_says_that_claims_were_pruned<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    stage.claims_earlier(8 * 24 * HOUR).await;
    assert_eq!(stage.store.prune().await.unwrap(), 1);
    let why = ask(&stage, "a").await;
    assert!(why.verdict == Verdict::WouldRun && why.hints.iter().any(|hint| hint.contains("too old")), "{why:?}");
    let now = std::time::SystemTime::now();
    for (ago, is_old) in [(9 * 24 * HOUR, true), (HOUR, false)] {
        let mut asked = Asked::new("order_paid", "a");
        asked.published = Some(now - ago);
        let why = operator(&stage).why(&asked).await.unwrap();
        assert_eq!(matches!(why.verdict, Verdict::TooOld { .. }), is_old, "{why:?}");
    }
}

/// A handler that may process without claims, of which no claim proves nothing.
pub async fn why_says_that_a_handler_may_have_no_claims<W: World>(world: W) {
    let stage = Stage::new(world).await;
    assert!(ask(&stage, "a").await.hints.iter().all(|hint| !hint.contains("without claims")));
    stage.store.mark(&[stage.handler], HandlerMark::Processes).await.unwrap();
    let why = ask(&stage, "a").await;
    assert!(
        why.verdict == Verdict::WouldRun && why.hints.iter().any(|hint| hint.contains("without claims")),
        "{why:?}"
    );
}

/// By its name, also a former one, and with its consumer where several have it.
pub async fn a_handler_is_found_by_each_of_its_names<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    assert!(stage.store.rename("billing", "order_paid", "settled").await.unwrap());
    register(&stage.store, "audit/eu", "order_sent").await;
    let all = Operator::new(&stage.store);
    for name in ["settled", "order_paid", "billing/settled", "billing/order_paid"] {
        let found = all.handler(name).await.unwrap();
        assert_eq!((found.id, found.name.as_str()), (stage.handler, "settled"), "{name}");
        let why = all.why(&Asked::new(name, "a")).await.unwrap();
        assert_eq!((why.consumer.as_str(), why.handler.as_str()), ("billing", "settled"));
        assert!(matches!(why.verdict, Verdict::Duplicate { .. }), "{name}: {why:?}");
    }
    assert_eq!(all.handler("audit/eu/order_sent").await.unwrap().consumer, "audit/eu", "a name may have a stroke");

    let refused = async |of: &Operator<W::Store>, name: &str| match of.handler(name).await {
        Err(Error::Config(text)) => text,
        other => panic!("{name}: {other:?}"),
    };
    let nearest = refused(&all, "setled").await;
    assert!(nearest.contains("setled") && nearest.contains("settled"), "{nearest}");
    register(&stage.store, "audit/eu", "settled").await;
    let several = refused(&all, "settled").await;
    assert!(several.contains("billing/settled") && several.contains("audit/eu/settled"), "{several}");
    assert_eq!(all.clone().consumer("billing").handler("settled").await.unwrap().id, stage.handler);
    refused(&all.clone().consumer("billing"), "order_sent").await;
    assert_eq!(all.list(&Filter::new().handler("order_paid"), Page::default()).await.unwrap().rows.len(), 0);
    let known = Operator::of(&stage.store, "biling").await.map(drop).unwrap_err().to_string();
    assert!(known.contains("biling") && known.contains("billing"), "{known}");
}

/// A copy that comes later runs again, and who has decided that is written down.
pub async fn a_forgotten_claim_runs_again<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let shipped = register(&stage.store, "billing", "order_shipped").await;
    stage.process("a").await;
    committed(stage.commit(stage.claimed(&Identity { handler: shipped, ..stage.id("a") }).await).await);
    let anna = operator(&stage);
    let (handler, key) = (anna.handler("order_paid").await.unwrap(), Key::of("a").unwrap());
    assert!(matches!(anna.forget(&handler, &key).await.unwrap(), Forgotten::Done { .. }));
    assert!(stage.claim_now(&stage.id("a")).await.is_new());
    assert!(
        !stage.claim_now(&Identity { handler: shipped, ..stage.id("a") }).await.is_new(),
        "that of another handler"
    );
    let why = ask(&stage, "a").await;
    assert_eq!((why.verdict, why.operations[0].action.as_str()), (Verdict::WouldRun, "forgotten"));
    assert!(matches!(anna.forget(&handler, &key).await.unwrap(), Forgotten::NoClaim));
    let all = anna.operations(None, Page::default()).await.unwrap();
    assert_eq!(all.len(), 1, "nothing was forgotten the second time: {all:?}");
}

/// Its message is in the inbox, or another one that was compared with it.
pub async fn a_claim_with_a_row_is_not_forgotten<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("waits").await;
    let waits = stage.one_scheduled().await.id;
    let dead = stage.dead_letter("dead", Reason::Exhausted).await;
    stage.process("a").await;
    let conflict = stage.conflict("a", "another").await;
    let anna = operator(&stage);
    let handler = anna.handler("order_paid").await.unwrap();
    for (key, row) in [("waits", waits), ("dead", dead), ("a", conflict)] {
        match anna.forget(&handler, &Key::of(key).unwrap()).await {
            Ok(Forgotten::InInbox(id)) => assert_eq!(id, row, "{key}"),
            Err(Error::Config(text)) => assert!(text.contains(&row.to_string()), "{text}"),
            other => panic!("{key}: {other:?}"),
        }
        assert!(stage.existing_claim(key).await.is_some(), "{key}");
    }
    assert_eq!(stage.world.number(&format!("SELECT count(*) FROM {}", stage.world.own("operations"))).await, 0);
}

/// A row of the table of workers, as a process writes it that was last seen so long ago.
async fn beat<W: World>(stage: &Stage<W>, kind: &str, name: &str, ago: Duration, processed: [u64; 2]) {
    let minutes = |first: [u64; 2]| {
        let all = first.into_iter().chain([0; 58]).map(|count| count.to_string());
        all.collect::<Vec<_>>().join(",")
    };
    let report = format!(
        r#"{{"processed":[{}],"duplicates":[{}],"failed":[{}],"blocked":2,"blocked_for":1500,"paused":null,"window":null}}"#,
        minutes(processed),
        minutes([1, 0]),
        minutes([0, 2]),
    );
    let columns = "(instance, kind, name, host, pid, version, started_at, seen_at, report)";
    let question = Question::new(
        "a beat of a test",
        format!(
            "INSERT INTO {{schema}}.workers {columns} VALUES (gen_random_uuid(), $1, $2, 'h\"1', 7, '1.2', now() - interval '1 day',
             now() - $3 * interval '1 millisecond', $4::json) RETURNING 'done'"
        ),
        format!(
            "INSERT INTO \"idem_workers\" {columns} VALUES (randomblob(16), $1, $2, 'h\"1', 7, '1.2', {{now}} - 86400000,
             {{now}} - $3, $4) RETURNING 'done'"
        ),
    );
    let ago = i64::try_from(ago.as_millis()).unwrap();
    let values = [Value::from(kind), Value::from(name), Value::from(ago), Value::from(report)];
    assert_eq!(stage.store.ask(&question.writes(), &values).await.unwrap(), ["done"]);
}

/// The counts are those of the minutes before the row was written, so they move while it is not written again.
pub async fn rates_are_those_of_all_workers_by_their_age<W: World>(world: W) {
    let stage = Stage::new(world).await;
    beat(&stage, "worker", "billing", Duration::ZERO, [5, 4]).await;
    beat(&stage, "worker", "billing", Duration::from_secs(20), [10, 0]).await;
    beat(&stage, "worker", "billing", 10 * MINUTE, [100, 0]).await;
    beat(&stage, "worker", "billing", 61 * MINUTE, [1000, 0]).await;
    beat(&stage, "worker", "shipping", Duration::ZERO, [10_000, 0]).await;
    beat(&stage, "relay", "billing", Duration::ZERO, [100_000, 0]).await;
    let status = operator(&stage).status(Count::AtLeast).await.unwrap();
    let [billing] = &status.consumers[..] else { panic!("{status:?}") };
    assert_eq!((billing.alive, billing.hour.processed), (2, 119));
    assert_eq!((billing.hour.duplicates, billing.hour.failed), (3, 6));
    assert_eq!(billing.series[0].len(), 60);
    assert_eq!((billing.series[0][59], billing.series[0][58], billing.series[0][49]), (15, 4, 100), "newest last");
    assert_eq!(billing.series[0].iter().sum::<u32>(), 119);
    assert_eq!((billing.blocked, billing.blocked_for.map(|time| time >= Duration::from_millis(1500))), (4, Some(true)));

    let workers = Operator::new(&stage.store).workers().await.unwrap();
    let alive = |kind: &str| workers.iter().filter(|worker| worker.kind == kind && worker.alive).count();
    assert_eq!((workers.len(), alive("worker"), alive("relay")), (6, 3, 1));
    assert!(workers.iter().all(|worker| (worker.host.as_str(), worker.pid) == ("h\"1", 7)), "{workers:?}");
}

/// A process that is started again and again leaves a row each time.
pub async fn workers_that_are_gone_hide_none<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let columns = "(instance, kind, name, host, pid, version, started_at, seen_at, report)";
    let gone = Question::new(
        "a crash loop of a test",
        format!(
            "INSERT INTO {{schema}}.workers {columns} SELECT gen_random_uuid(), 'worker', 'a', 'h', 7, '1', now(),
             now() - interval '1 hour', '{{}}'::json FROM generate_series(1, 1100) RETURNING 'done'"
        ),
        format!(
            "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 1100)
             INSERT INTO \"idem_workers\" {columns} SELECT randomblob(16), 'worker', 'a', 'h', 7, '1', {{now}},
             {{now}} - 3600000, '{{}}' FROM n RETURNING 'done'"
        ),
    );
    assert_eq!(stage.store.ask(&gone.writes(), &[]).await.unwrap().len(), 1100);
    beat(&stage, "worker", "billing", Duration::ZERO, [5, 4]).await;
    let status = operator(&stage).status(Count::AtLeast).await.unwrap();
    assert_eq!(status.consumers[0].alive, 1, "{status:?}");
    assert_eq!(Operator::new(&stage.store).workers().await.unwrap().len(), 1000);
}

/// A service that is down is one finding, and no reason to end its messages; a handler that living workers lack is another.
pub async fn doctor_tells_a_service_that_is_down_from_a_handler_that_is_gone<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let shipped = register(&stage.store, "billing", "order_shipped").await;
    stage.schedule("a").await;
    stage.row(&Identity { handler: shipped, ..stage.id("b") }, true, Ok(Duration::ZERO)).await;
    let unseen = Question::new(
        "an hour without workers",
        "UPDATE {schema}.handlers SET seen_at = now() - interval '1 hour' RETURNING 'done'",
        "UPDATE \"idem_handlers\" SET seen_at = {now} - 3600000 RETURNING 'done'",
    );
    stage.store.ask(&unseen.writes(), &[]).await.unwrap();
    let found = async || Operator::new(&stage.store).doctor(None).await.unwrap();
    let [down] = &found().await[..] else { panic!("{:?}", found().await) };
    assert!(down.what.contains("no worker of it is alive") && !down.remedy.contains("UPDATE"), "{down:?}");
    beat(&stage, "worker", "billing", Duration::ZERO, [5, 4]).await;
    let gone = found().await;
    assert!(gone.len() == 2 && gone.iter().all(|gone| gone.remedy.contains("UPDATE")), "{gone:?}");
}
