//! Input that is wrong, and messages that are made to harm: each answer names the mistake, or shows the message harmless.

use idem::prelude::*;
use idem_test::{Broker, Publication};

use crate::shop::{Event, postgres, sqlite};
use crate::world::{Answer, OnPostgres, OnSqlite, Running, idem};

/// What a terminal obeys, or shows as another text.
const HARMFUL: [char; 4] = ['\u{1b}', '\u{9b}', '\u{202e}', '\u{7}'];

/// A payload that is not JSON, has the characters in it, and whose end a person does not need.
fn ten_megabytes() -> Vec<u8> {
    let begin: String = HARMFUL.iter().collect();
    let mut payload = format!("{begin}[2J<script>alert(1)</script>").into_bytes();
    payload.resize(10 << 20, b'x');
    payload
}

/// Two handlers named `order_paid` in two consumers, each with a dead letter, and one message that means harm.
macro_rules! dead_letters {
    ($world:expr, $handlers:ident) => {
        let broker = Broker::new();
        let harmful: String = HARMFUL.iter().collect();
        let publication = Publication::new(ten_megabytes()).header("x-\u{1b}[2J", harmful.clone());
        broker.publish("billing", publication.message_id(format!("m{harmful}")));
        for consumer in ["billing", "audit"] {
            broker.publish_json(consumer, &Event::new("9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a1", 301)).unwrap();
            let worker = Worker::new(consumer, $world.store.clone(), broker.queue(consumer)).max_payload(20 << 20);
            let worker = worker.retry(RetryPolicy::new().max_attempts(1)).handler::<$handlers::order_paid>();
            let worker = Running::start(|shutdown| worker.run_until(shutdown));
            broker.idle().await;
            worker.stop().await;
        }
    };
}

fn is_harmless(answer: &Answer) {
    let texts = [&answer.out, &answer.err];
    assert!(texts.iter().all(|text| !text.contains(HARMFUL)), "{:?}", &answer.out[..answer.out.len().min(2000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_named_with_what_to_write() {
    let Some(world) = OnSqlite::new().await else { return };
    dead_letters!(world, sqlite);
    let cases: [(&[&str], i32, &[&str]); 20] = [
        (
            &["dead", "list", "--handler", "billing/order_payed"],
            2,
            &["no handler \"billing/order_payed\"", "billing/order_paid"],
        ),
        (&["why", "order_paid", "e-1"], 2, &["billing/order_paid", "audit/order_paid"]),
        (&["why", "zzz", "e-1"], 2, &["no handler \"zzz\"", "There are: audit/order_paid, billing/order_paid"]),
        (&["why", "billing/order_paid", "order-7"], 10, &["it would run", "9513c1b4-"]),
        (&["dead", "list", "--error", "no such text"], 1, &["no dead letter matches", "looked at 3 rows"]),
        (&["dead", "list", "--payload", "no such text"], 1, &["looked at 3 rows", "not searched: 1"]),
        (&["dead", "replay", "--error", "no such text"], 1, &["no dead letter matches"]),
        (&["dead", "replay", "4711"], 1, &["no such dead letter", "idem operations"]),
        (&["dead", "show", "4711"], 1, &["#4711"]),
        (&["dead", "replay"], 2, &["--handler", "--all"]),
        (&["dead", "replay", "--error", "", "--dry-run"], 2, &["--error"]),
        (&["dead", "discard", "--all"], 2, &["--yes"]),
        (&["dead", "list", "--reason", "exausted"], 2, &["exhausted"]),
        (&["dead", "list", "--since", "whenever"], 2, &["whenever"]),
        (&["--consumer", "biling", "status"], 2, &["billing"]),
        (&["outbox", "replay", "shop", "1"], 2, &["no outbox \"shop\""]),
        (&["forget", "billing/order_paid", "e-1", "--yes"], 1, &["no claim"]),
        (&["page", "--listen", "0.0.0.0:4040"], 2, &["--i-have-authentication"]),
        (&["calls", "resolve", "1", "--key", "9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a1", "--answer", "{"], 2, &["JSON"]),
        (&["operations"], 1, &["no operator has changed"]),
    ];
    for (args, exit, parts) in cases {
        world.idem(args).await.check(exit, parts);
    }
    let error = world.idem(&["dead", "list", "--error", "no such text", "--json"]).await;
    assert_eq!(error.json()["rows"], serde_json::json!([]));
    let said: serde_json::Value = serde_json::from_str(&error.err).unwrap();
    assert!(said["error"].as_str().unwrap().contains("no dead letter matches"), "{said}");
    let wrong = world.idem(&["dead", "list", "--since", "whenever", "--json"]).await;
    let said: serde_json::Value = serde_json::from_str(&wrong.err).unwrap();
    assert!(wrong.exit == 2 && said["error"].as_str().unwrap().contains("whenever"), "{wrong:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_means_harm_is_shown_harmless() {
    let Some(mut world) = OnSqlite::new().await else { return };
    dead_letters!(world, sqlite);
    let error = format!(
        "UPDATE {{inbox_messages}} SET error = '{}<b>' WHERE reason <> 'exhausted'",
        HARMFUL.iter().collect::<String>()
    );
    world.execute(&error).await;
    let id = world.number("SELECT max(id) FROM {inbox_messages} WHERE length(payload) > 1000000").await.to_string();
    for args in [&["dead", "show", &id][..], &["dead", "list"], &["dead", "group"], &["status"], &["doctor"]] {
        for json in [&[][..], &["--json"]] {
            let answer = world.idem(&[args, json].concat()).await;
            is_harmless(&answer);
            assert!(answer.out.len() < 40_000, "{args:?} prints {} bytes", answer.out.len());
        }
    }
    let shown = world.idem(&["dead", "show", &id]).await;
    shown.check(0, &["10485760", "<script>"]);
    let raw = tokio::process::Command::new(env!("CARGO_BIN_EXE_idem"))
        .args(["--database", &world.url, "dead", "show", &id, "--raw"])
        .output()
        .await
        .unwrap();
    assert!(raw.stdout == ten_megabytes(), "the payload is written byte by byte");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_shown_only_if_that_is_asked_for() {
    let Some(mut world) = OnSqlite::new().await else { return };
    let broker = Broker::new();
    let publication = Publication::new(r#"{"event_id": "e-1", "order_id": 301, "password": "hunter2"}"#);
    broker.publish("orders", publication.header("authorization", "Bearer hunter2"));
    let worker = Worker::new("billing", world.store.clone(), broker.queue("orders"));
    let worker = worker.retry(RetryPolicy::new().max_attempts(1)).handler::<sqlite::order_paid>();
    let worker = Running::start(|shutdown| worker.run_until(shutdown));
    broker.idle().await;
    worker.stop().await;
    let id = world.number("SELECT id FROM {inbox_messages}").await.to_string();
    for args in [&["dead", "show", &id][..], &["dead", "show", &id, "--json"], &["dead", "list", "--json"]] {
        let answer = world.idem(args).await;
        assert!(answer.exit == 0 && !answer.out.contains("hunter2"), "{answer:?}");
    }
    let raw = world.idem(&["dead", "show", &id, "--raw"]).await;
    assert_eq!(raw.out.matches("hunter2").count(), 1, "{raw:?}");
    world.end().await;
}

/// As behind `2>&1 | head`.
#[test]
fn a_command_whose_readers_are_gone_does_not_panic() {
    let cases: [(&[&str], i32); 2] = [(&["status"], 2), (&["roles", "--print"], 0)];
    for (args, exit) in cases {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut idem = std::process::Command::new(env!("CARGO_BIN_EXE_idem"));
        idem.args(args).env("DATABASE_URL", "").stdout(writer.try_clone().unwrap()).stderr(writer);
        assert_eq!(idem.status().unwrap().code(), Some(exit), "{args:?}");
    }
}

/// The database that the arguments name cannot be used, or is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_used_is_named_without_its_password() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("none.db").display().to_string();
    let cases = [
        ("", 2, "DATABASE_URL"),
        ("mysql://shop:sentinel@db/shop", 2, "mysql://"),
        ("host=db user=shop password=sentinel", 2, "postgres://.."),
        ("shop:sentinel@db/shop", 2, "postgres://.."),
        (path.as_str(), 3, "nothing was created"),
        ("postgres://shop:sentinel@127.0.0.1:1/shop", 3, "127.0.0.1:1"),
    ];
    for (url, exit, part) in cases {
        let answer = idem(url, "idem_store", &["status"]).await;
        answer.check(exit, &[part]);
        assert!(!answer.err.contains("sentinel"), "{answer:?}");
    }
    assert!(!std::path::Path::new(&path).exists());
    for args in [
        &["roles", "--print"][..],
        &["migrate", "--print", "--database", "sqlite:none.db"],
        &["dead", "replay", "--help"],
    ] {
        assert_eq!(idem("", "idem_store", args).await.exit, 0, "{args:?} needs no database");
    }
    idem(&path, "idem_store", &["migrate"]).await.check(0, &["0001_tables.sql"]);
    let url = format!("sqlite:{path}");
    for named in [&path, &url] {
        idem(named, "idem_store", &["status"]).await.check(0, &["no worker has been here yet"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_are_missing_or_newer_are_named_with_the_version_of_the_command() {
    let Some(mut world) = OnPostgres::new().await else { return };
    let absent = idem(&world.url, "idem_cli_absent", &["status"]).await;
    absent.check(3, &["0001_tables.sql", "idem migrate", "this is idem 0."]);
    world.execute("INSERT INTO {migrations} (version, name, supports) VALUES (9999, 'later', 9999)").await;
    world.idem(&["dead", "list"]).await.check(3, &["newer", "9999", "this is idem 0."]);
    world.execute("DELETE FROM {migrations} WHERE version = 9999").await;
    world.execute("DROP TABLE {operations}").await;
    world.idem(&["status"]).await.check(3, &["operations"]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_may_only_be_read_is_read() {
    let Some(mut world) = OnSqlite::new().await else { return };
    dead_letters!(world, sqlite);
    let id = world.number("SELECT min(id) FROM {inbox_messages}").await.to_string();
    let url = format!("{}?mode=ro", world.url);
    idem(&url, "idem_store", &["dead", "list"]).await.check(0, &["timeout after 30 s"]);
    idem(&url, "idem_store", &["dead", "replay", &id]).await.check(4, &["it may use: status"]);
    world.end().await;
}

/// Each of two operators replays what the other does not.
#[tokio::test(flavor = "multi_thread")]
async fn two_operators_at_once_replay_each_message_once() {
    let Some(mut world) = OnPostgres::new().await else { return };
    let broker = Broker::new();
    for id in 0..200 {
        broker.publish_json("orders", &Event::new(id, 301)).unwrap();
    }
    let worker = Worker::new("billing", world.store.clone(), broker.queue("orders"));
    let worker = worker.retry(RetryPolicy::new().max_attempts(1)).handler::<postgres::order_paid>();
    let worker = Running::start(|shutdown| worker.run_until(shutdown));
    broker.idle().await;
    worker.stop().await;
    let replay = ["dead", "replay", "--handler", "order_paid", "--json"];
    let (one, other) = tokio::join!(world.idem(&replay), world.idem(&replay));
    let due = [&one, &other].map(|answer| answer.json()["due"].as_i64().unwrap());
    assert_eq!(due.iter().sum::<i64>(), 200, "{one:?} {other:?}");
    assert_eq!(world.number("SELECT count(*) FROM {operations}").await, 200);
    let id = world.number("SELECT min(id) FROM {inbox_messages}").await.to_string();
    world.idem(&["dead", "replay", &id]).await.check(1, &["no such dead letter", "idem operations"]);
    world.end().await;
}
