//! Opening: settings, migrations, and the errors with their remedies.

use std::process::{Command, Stdio};
use std::time::Duration;

use idem_core::store::{By, Consumers, Of, Replay, Resolution, StoreError, Transactions};
use idem_core::{Error, Sqlite};

use crate::world::{Dir, LONG, World, lent};

/// Asserts that the error contains all of these.
fn says(result: Result<Sqlite, Error>, words: &[&str]) {
    let text = result.unwrap_err().to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
}

#[tokio::test]
async fn a_file_is_made_with_its_tables_in_wal_mode() {
    let world = World::new().await;
    let mut outsider = world.outsider().await;
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut outsider).await.unwrap();
    assert_eq!(mode, "wal");
    let lax = "pragma_table_list WHERE name LIKE 'idem%' AND type = 'table' AND NOT strict";
    assert_eq!(world.count(lax).await, 0);
    let mut txn = world.store.begin(LONG).await.unwrap();
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(lent(&mut txn)).await.unwrap();
    assert_eq!(synchronous, 2, "2 is FULL");
}

#[tokio::test]
async fn urls_with_slashes_and_plain_paths_name_the_same_file() {
    let dir = Dir::new();
    let path = dir.path("orders.db");
    for url in [format!("sqlite:{path}"), format!("sqlite://{path}"), path.clone()] {
        Sqlite::connect(&url).await.unwrap();
    }
    let files = std::fs::read_dir(dir.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(files.map(|name| name.into_string().unwrap()).all(|name| name.starts_with("orders.db")));
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named_with_the_remedy() {
    let dir = Dir::new();
    for path in [dir.path(""), dir.path("no/such/orders.db")] {
        says(Sqlite::connect(&path).await, &[&path, "may not be a directory", "its directory has to exist"]);
    }
    let text = dir.path("text.db");
    std::fs::write(&text, "this is a text, and long enough to be taken for a database header ".repeat(9)).unwrap();
    says(Sqlite::connect(&text).await, &[&text, "not an SQLite database", "name another file"]);
    says(Sqlite::connect("").await, &["names no file"]);
    says(Sqlite::connect("file:orders.db").await, &["sqlite:orders.db"]);
    says(Sqlite::connect("sqlite:orders.db?color=red").await, &["orders.db", "not the URL"]);
}

#[tokio::test]
async fn a_read_only_file_is_named_with_the_remedy() {
    let world = World::new().await;
    let path = world.dir.path("copy.db");
    world.sql(&format!("VACUUM INTO '{path}'")).await;
    // A write version that SQLite does not know makes a file read-only for every user, including root (SQLite manual,
    // "Database File Format", 1.3.3).
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[18] = 3;
    std::fs::write(&path, bytes).unwrap();
    says(Sqlite::connect(&path).await, &[&path, "read-only", "let this user write"]);
}

#[tokio::test]
async fn settings_that_would_lose_claims_are_refused() {
    for url in ["sqlite::memory:", ":memory:", "sqlite://:memory:", "sqlite:a.db?mode=memory"] {
        says(Sqlite::connect(url).await, &["in memory", "name a file"]);
    }
    for url in ["sqlite:a.db?mode=ro", "sqlite:a.db?immutable=1", "sqlite:a.db?cache=shared"] {
        says(Sqlite::connect(url).await, &[url, "remove it"]);
    }
    says(Sqlite::options("sqlite:a.db").retention(Duration::ZERO).connect().await, &["retention of zero", "give"]);
    assert!(!std::fs::exists("a.db").unwrap());
}

#[tokio::test]
async fn an_operator_reads_a_file_that_workers_of_the_same_process_write() {
    let world = World::new().await;
    let read_only = format!("{}?mode=ro", world.dir.url());
    let operator = Sqlite::options(&read_only).for_operator().connect().await.unwrap();
    assert_eq!(operator.handlers(Some("billing")).await.unwrap().len(), 1);
    let (ids, by) = ([1], By::new("anna"));
    for refused in [
        operator.replay(Of::all(&ids), Replay::Plain, &by).await.map(drop),
        operator.resolve(Of::all(&ids), None, &Resolution::Discard, &by).await.map(drop),
        operator.prune().await.map(drop),
    ] {
        assert!(matches!(refused, Err(StoreError::Denied(_))), "{refused:?}");
    }
    world.store.replay(Of::all(&ids), Replay::Plain, &by).await.unwrap();
    says(Sqlite::options(world.dir.path("none.db")).for_operator().connect().await, &["none.db", "does not exist yet"]);
    assert!(!std::fs::exists(world.dir.path("none.db")).unwrap());
}

#[tokio::test]
async fn another_databases_url_is_refused_without_its_password() {
    let error = Sqlite::connect("postgres://user:sentinel@host/db").await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("postgres://") && !text.contains("sentinel"), "{text}");
}

#[tokio::test]
async fn tables_of_another_origin_are_left_alone() {
    let dir = Dir::new();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path("orders.db")).create_if_missing(true);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE idem_handlers (mine)").execute(&mut connection).await.unwrap();
    says(Sqlite::connect(&dir.url()).await, &["migration 0001", "orders.db", "`idem_`", "a file of its own"]);
    let tables = sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'idem%'");
    let tables: i64 = tables.fetch_one(&mut connection).await.unwrap();
    assert_eq!(tables, 1, "a migration is applied whole or not at all");
}

#[tokio::test]
async fn verify_only_makes_nothing_and_says_what_is_missing() {
    let dir = Dir::new();
    let verify = || Sqlite::options(dir.url()).verify_only().connect();
    says(verify().await, &["orders.db", "does not exist yet", "without verify_only()"]);
    assert!(!std::fs::exists(dir.path("orders.db")).unwrap());

    std::fs::write(dir.path("orders.db"), "").unwrap();
    says(verify().await, &["orders.db", "PRAGMA journal_mode = WAL"]);
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path("orders.db"));
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::raw_sql("PRAGMA journal_mode = WAL").execute(&mut connection).await.unwrap();
    says(verify().await, &["orders.db", "lacks migration 0001", "without verify_only()", "Sqlite::migrations()"]);

    Sqlite::connect(&dir.url()).await.unwrap();
    verify().await.unwrap().ping().await.unwrap();
}

#[tokio::test]
async fn the_migration_run_by_hand_is_what_connect_finds() {
    let dir = Dir::new();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path("orders.db")).create_if_missing(true);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    sqlx::raw_sql("PRAGMA journal_mode = WAL; BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
    for migration in Sqlite::migrations() {
        sqlx::raw_sql(migration.sql).execute(&mut connection).await.unwrap();
    }
    sqlx::raw_sql("COMMIT").execute(&mut connection).await.unwrap();
    Sqlite::options(dir.url()).verify_only().connect().await.unwrap();
    Sqlite::connect(&dir.url()).await.unwrap();
}

#[tokio::test]
async fn a_file_with_readers_enters_wal_mode_when_they_have_ended() {
    let dir = Dir::new();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path("orders.db")).create_if_missing(true);
    let mut reader = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let read = "CREATE TABLE mine (id); BEGIN; SELECT * FROM mine";
    sqlx::raw_sql(read).execute(&mut reader).await.unwrap();
    let url = dir.url();
    let mut connect = std::pin::pin!(Sqlite::connect(&url));
    let early = tokio::time::timeout(Duration::from_millis(300), connect.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    sqlx::raw_sql("COMMIT").execute(&mut reader).await.unwrap();
    connect.await.unwrap();
}

/// A child process of the next test. Without `IDEM_TEST_CHILD` it does nothing.
#[tokio::test]
async fn ten_processes_child() {
    if let Ok(url) = std::env::var("IDEM_TEST_CHILD") {
        let store = Sqlite::connect(&url).await.unwrap();
        store.register("billing", &["a", "b", ""]).await.unwrap();
    }
}

#[tokio::test]
async fn ten_processes_may_connect_to_a_new_file_at_once() {
    let dir = Dir::new();
    let spawn = |_| {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "open::ten_processes_child", "--nocapture"])
            .env("IDEM_TEST_CHILD", dir.url())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for child in (0..10).map(spawn).collect::<Vec<_>>() {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let store = Sqlite::options(dir.url()).verify_only().connect().await.unwrap();
    let ids = store.register("billing", &["a", "b", "", "c"]).await.unwrap();
    assert_eq!(ids.iter().map(|id| id.0).collect::<std::collections::BTreeSet<_>>().len(), 4);
}

/// The error of a start, with migration and with verification only; `None` if it starts.
pub(crate) async fn starts(dir: &Dir) -> Option<String> {
    let options = || Sqlite::options(dir.url());
    let refused = [options().connect().await, options().verify_only().connect().await].map(|answer| match answer {
        Ok(_) => None,
        Err(idem_core::Error::Config(why)) => Some(why),
        Err(other) => panic!("not refused: {other:?}"),
    });
    assert_eq!(refused[0], refused[1]);
    refused.into_iter().next().flatten()
}

#[tokio::test]
async fn a_newer_file_is_refused_unless_it_says_that_it_supports_this_version() {
    let world = World::new().await;
    assert_eq!(world.count("idem_migrations WHERE supports > 1").await, 0, "all versions may use the tables");
    world.sql("INSERT INTO idem_migrations (version, name, supports) VALUES (2, 'later', 2)").await;
    let why = starts(&world.dir).await.unwrap();
    for part in ["orders.db", "0002", "later", "0001"] {
        assert!(why.contains(part), "{why}");
    }
    world.sql("UPDATE idem_migrations SET supports = 1 WHERE version = 2").await;
    assert_eq!(starts(&world.dir).await, None, "it only adds something");
    world.sql("INSERT INTO idem_migrations (version, name, supports) VALUES (3, 'much_later', 2)").await;
    assert!(starts(&world.dir).await.unwrap().contains("much_later"));
}

#[tokio::test]
async fn a_missing_column_is_named_at_the_start() {
    let world = World::new().await;
    let asked = "SELECT t.name, c.name FROM sqlite_schema AS t JOIN pragma_table_info(t.name) AS c
                 WHERE t.type = 'table' AND t.name LIKE 'idem%'";
    let columns = sqlx::query_as::<_, (String, String)>(asked).fetch_all(&mut world.outsider().await).await.unwrap();
    assert!(columns.len() > 25, "{columns:?}");
    for (table, column) in columns {
        world.sql(&format!("ALTER TABLE {table} RENAME COLUMN {column} TO gone")).await;
        let why = starts(&world.dir).await.unwrap_or_else(|| panic!("it starts without {column} of {table}"));
        for part in ["orders.db", table.trim_start_matches("idem_"), &column, "Sqlite::migrations()"] {
            assert!(why.contains(part), "{why}");
        }
        world.sql(&format!("ALTER TABLE {table} RENAME COLUMN gone TO {column}")).await;
    }
    world.sql("DROP TABLE idem_inbox_messages").await;
    assert!(starts(&world.dir).await.unwrap().contains("the table `inbox_messages`"));
}
