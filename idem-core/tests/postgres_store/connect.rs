//! Options, migration, checks, and the errors when they fail.

use std::time::Duration;

use idem_core::store::{ClaimState, CommitResult, Consumers, OutboxRows, Transactions};
use idem_core::{Error, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::world::{DEADLINE, World, fresh, url, world};

pub(crate) const SENTINEL: &str = "s3ntinel";

pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Config(why)) => why,
        Err(denied @ Error::Denied { .. }) => denied.to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// The error in every form in which a user may print it.
pub(crate) fn error_text<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap();
    let text = format!("{error} / {source} / {error:?}");
    assert!(!text.contains(SENTINEL), "{text}");
    text
}

#[tokio::test]
async fn a_schema_may_have_any_name_that_fits() {
    let Some(url) = url() else { return };
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let odd = format!("it's \"{{schema}}\" %s; $1 \\ {}", &fresh("")[..8]);
    for name in [odd, format!("{}{}", fresh("é"), "x".repeat(28))] {
        let store = Postgres::options(&url).schema(&name).connect().await.unwrap();
        let handler = store.register("billing", &["order_paid"]).await.unwrap()[0];
        let mut txn = store.begin(DEADLINE).await.unwrap();
        let key = idem_core::Key::of("k").unwrap();
        let identity = idem_core::store::Identity { handler, key, fingerprint: idem_core::Fingerprint::none() };
        store.claim(&mut txn, &[&identity], ClaimState::Processed).await.unwrap();
        assert!(matches!(store.commit(txn).await, CommitResult::Done));
        store.ping().await.unwrap();
        store.prune().await.unwrap();
        Postgres::options(&url).schema(&name).verify_only().connect().await.unwrap();
        let text = format!("DROP SCHEMA \"{}\" CASCADE", name.replace('"', "\"\""));
        admin.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_with_the_remedy() {
    let options = || Postgres::options("postgres://nobody@127.0.0.1:1/nothing");
    for schema in ["", &"x".repeat(64), "nul\0"] {
        assert!(refusal(options().schema(schema).connect().await).contains(".schema(..)"));
    }
    assert!(refusal(options().retention(Duration::ZERO).connect().await).contains(".retention(..)"));
    for few in [0, 1] {
        assert!(refusal(options().connections(few).connect().await).contains(".connections(2)"));
    }
}

#[tokio::test]
async fn a_wrong_url_is_reported_without_its_content() {
    for url in [
        format!("postgres://user:{SENTINEL}@host:port/db"),
        format!("mysql://user:{SENTINEL}@host/db"),
        SENTINEL.to_owned(),
        format!("postgres://user:12/{SENTINEL}@host/db"),
        format!("postgres://user:12?{SENTINEL}@host/db"),
        format!("postgres://user:12#{SENTINEL}@host/db"),
    ] {
        let text = error_text(Postgres::connect(&url).await);
        assert!(text.contains("postgres://user:password@host:5432/database"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_named_without_the_password() {
    let text = error_text(Postgres::connect(&format!("postgres://me:{SENTINEL}@127.0.0.1:1/shop")).await);
    for part in ["127.0.0.1:1", "shop", "me"] {
        assert!(text.contains(part), "{text}");
    }
    let text = error_text(Postgres::connect(&format!("postgres://me:{SENTINEL}@%2Fnowhere:1/shop")).await);
    assert!(text.contains("/nowhere"), "{text}");
}

/// Demos and tests connect as a role `idem` to a database `idem`, and so may users.
#[tokio::test]
async fn the_default_schema_is_not_the_name_that_a_role_may_well_have() {
    let shown = format!("{:?}", Postgres::options("postgres://idem@localhost/idem"));
    assert!(shown.contains("schema: \"idem_store\""), "{shown}");
}

#[tokio::test]
async fn the_files_can_be_run_by_hand() {
    let Some(url) = url() else { return };
    let schema = fresh("idem_test");
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let file = Postgres::migrations().iter().map(|migration| migration.sql).collect::<String>();
    let text = format!("BEGIN; CREATE SCHEMA {schema}; SET LOCAL search_path TO {schema}; {file}; COMMIT");
    admin.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    Postgres::options(&url).schema(&schema).verify_only().connect().await.unwrap();
    admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
}

#[tokio::test]
async fn an_unlogged_table_is_refused_unless_the_user_insists() {
    let Some(mut world) = world().await else { return };
    for table in ["processed_messages", "inbox_messages", "outbox_messages"] {
        let set = |how: &str| AssertSqlSafe(format!("ALTER TABLE {table} SET {how}"));
        world.other.execute(sqlx::raw_sql(set("UNLOGGED"))).await.unwrap();
        let options = || Postgres::options(&world.url).schema(&world.schema);
        let why = refusal(options().connect().await);
        assert!(why.contains(table) && why.contains("SET LOGGED"), "{why}");
        options().allow_unsafe_durability().connect().await.unwrap();
        world.other.execute(sqlx::raw_sql(set("LOGGED"))).await.unwrap();
    }
}

/// As behind a switch to a server that logical replication has filled.
#[tokio::test]
async fn a_sequence_that_is_behind_its_table_is_refused_with_the_statement_that_fixes_it() {
    let Some(mut world) = world().await else { return };
    world.schedule("one", Ok(Duration::ZERO)).await;
    let stage = "INSERT INTO outboxes (name) VALUES ('shop'), ('bank');
                 INSERT INTO outbox_messages (outbox_id, message_id, destination, envelope, payload)
                 SELECT 1 + n % 2, gen_random_uuid(), '', '{}', '' FROM generate_series(0, 63) AS n;
                 INSERT INTO operations (command, action, actor, key) VALUES (gen_random_uuid(), 'discarded', 'anna', '')";
    world.other.execute(sqlx::raw_sql(stage)).await.unwrap();
    let connect = async |world: &World| {
        Postgres::options(&world.url).schema(&world.schema).connect().await?.register_outbox("shop").await
    };
    connect(&world).await.unwrap();
    for table in ["inbox_messages", "outbox_messages", "operations"] {
        let set = format!("SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) - 1 FROM {table}))");
        let set = if table == "outbox_messages" { set } else { format!("ALTER TABLE {table} ALTER id RESTART") };
        world.other.execute(sqlx::raw_sql(AssertSqlSafe(set))).await.unwrap();
        let why = refusal(connect(&world).await);
        let remedy = why.find("SELECT setval(").map(|at| why[at..].to_owned()).unwrap_or_else(|| panic!("{why}"));
        assert!(remedy.contains(table), "{why}");
        world.other.execute(sqlx::raw_sql(AssertSqlSafe(remedy))).await.unwrap();
        connect(&world).await.unwrap();
    }
}

/// `pg_restore` makes the indexes behind the rows. A name that is registered before them would be there twice, and prevent them.
#[tokio::test]
async fn no_name_is_registered_while_a_restore_has_not_made_the_indexes() {
    let Some(mut world) = world().await else { return };
    let tables = [
        ("handlers", "handlers_consumer_name_key", "consumer, name", "'billing', 'refunds'"),
        ("outboxes", "outboxes_name_key", "name", "'shop'"),
    ];
    for (table, index, columns, restored) in tables {
        let lost = format!("ALTER TABLE {table} DROP CONSTRAINT {index}");
        world.other.execute(sqlx::raw_sql(AssertSqlSafe(lost))).await.unwrap();
        match table {
            "handlers" => drop(world.store.register("billing", &["refunds"]).await.unwrap_err()),
            _ => drop(world.store.register_outbox("shop").await.unwrap_err()),
        }
        // The index could not be made if the name had a row already.
        let add = format!(
            "INSERT INTO {table} ({columns}) VALUES ({restored});
             ALTER TABLE {table} ADD CONSTRAINT {index} UNIQUE ({columns})"
        );
        world.other.execute(sqlx::raw_sql(AssertSqlSafe(add))).await.unwrap();
        world.store.register("billing", &["refunds"]).await.unwrap();
    }
    world.store.register_outbox("shop").await.unwrap();
}

/// Its text columns could not take every error and header.
#[tokio::test]
async fn a_database_of_another_encoding_is_refused_with_its_remedy() {
    let Some(url) = url() else { return };
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let name = fresh("idem_latin");
    let create = format!("CREATE DATABASE {name} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    admin.execute(AssertSqlSafe(create)).await.unwrap();
    let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
    let latin = options.database(&name).to_url_lossy().to_string();
    let why = refusal(Postgres::options(&latin).connect().await);
    admin.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await.unwrap();
    assert!(why.contains("LATIN1") && why.contains("ENCODING 'UTF8'"), "{why}");
}
