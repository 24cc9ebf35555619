//! The tables that only some workers need: those of the outbox, and of the namespaces of calls.

use idem_core::store::{CallRows, Claims, OutboxRows};
use idem_core::{Error, Sqlite};

use crate::open::starts;
use crate::world::Dir;

/// The error of something that uses an outbox, in a store that starts; `None` if it starts too.
pub(crate) async fn stages(dir: &Dir) -> Option<String> {
    let store = Sqlite::options(dir.url()).verify_only().connect().await.unwrap();
    match store.register_outbox("billing").await {
        Ok(_) => None,
        Err(Error::Config(why)) => Some(why),
        Err(other) => panic!("not refused: {other:?}"),
    }
}

/// The error of something that uses the namespaces of calls.
pub(crate) async fn calls(dir: &Dir) -> Option<String> {
    let store = Sqlite::options(dir.url()).verify_only().connect().await.unwrap();
    let handler = store.register("billing", &["pays"]).await.unwrap()[0];
    match store.call_namespace(handler).await {
        Ok(_) => None,
        Err(Error::Config(why)) => Some(why),
        Err(other) => panic!("not refused: {other:?}"),
    }
}

/// A file with the migrations that every worker needs.
async fn first_migration() -> (Dir, sqlx::SqliteConnection) {
    let dir = Dir::new();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(dir.path("orders.db")).create_if_missing(true);
    let mut connection = sqlx::ConnectOptions::connect(&options).await.unwrap();
    let [first, _, calls, _, names] = Sqlite::migrations() else { panic!("there are more migrations") };
    let sql = sqlx::AssertSqlSafe(format!("PRAGMA journal_mode = WAL; {} {} {}", first.sql, calls.sql, names.sql));
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    (dir, connection)
}

#[tokio::test]
async fn a_worker_without_an_outbox_needs_no_second_migration() {
    let (dir, mut connection) = first_migration().await;
    let store = Sqlite::options(dir.url()).verify_only().connect().await.unwrap();
    assert_eq!(store.register("billing", &["order_paid"]).await.unwrap().len(), 1);
    let refused = [
        store.register_outbox("billing").await.map(drop),
        store.outbox("billing").stats(1).await.map(drop),
        store.outbox("billing").stage(&mut connection, [idem_core::Outgoing::new("orders", "")]).await,
    ];
    for refused in refused {
        let Err(Error::Config(why)) = refused else { panic!("{refused:?}") };
        for part in ["orders.db", "0002", "without verify_only()", "Sqlite::migrations()"] {
            assert!(why.contains(part), "{part} is not in {why}");
        }
    }
    let why = calls(&dir).await.unwrap();
    for part in ["orders.db", "0005", "external call", "without verify_only()", "Sqlite::migrations()"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    Sqlite::connect(&dir.url()).await.unwrap();
    assert_eq!(calls(&dir).await, None);
    store.register_outbox("billing").await.unwrap();
}

#[tokio::test]
async fn a_foreign_table_with_the_name_of_one_of_the_outbox_is_left_alone() {
    let (dir, mut connection) = first_migration().await;
    sqlx::raw_sql("CREATE TABLE idem_outbox_messages (mine)").execute(&mut connection).await.unwrap();
    assert_eq!(starts(&dir).await, None, "nothing stages");
    let tables =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name LIKE 'idem_outbox%'");
    let tables: i64 = tables.fetch_one(&mut connection).await.unwrap();
    assert_eq!(tables, 1, "a migration is applied whole or not at all");
    let why = stages(&dir).await.unwrap();
    for part in ["orders.db", "\"idem_outbox_messages\"", ".prefix(..)", "rename"] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    sqlx::raw_sql("ALTER TABLE idem_outbox_messages RENAME TO mine").execute(&mut connection).await.unwrap();
    assert_eq!(starts(&dir).await, None, "it migrates");
    assert_eq!(stages(&dir).await, None);
}
