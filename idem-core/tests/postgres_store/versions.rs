//! Tables of another version of idem, or incomplete ones.

use idem_core::{Error, Postgres};
use sqlx::{AssertSqlSafe, Executor};

use crate::world::{World, world};

impl World {
    async fn run(&mut self, sql: &str) {
        self.other.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    /// The error of a start, with migration and with verification only; `None` if it starts.
    async fn starts(&self) -> Option<String> {
        let options = || Postgres::options(&self.url).schema(&self.schema);
        let refused = [options().connect().await, options().verify_only().connect().await].map(why);
        assert_eq!(refused[0], refused[1]);
        refused.into_iter().next().flatten()
    }
}

/// The reason of a refusal; `None` if it is none.
fn why<T>(answer: Result<T, Error>) -> Option<String> {
    match answer {
        Ok(_) => None,
        Err(Error::Config(why)) => Some(why),
        Err(other) => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused_unless_it_says_that_it_supports_this_version() {
    let Some(mut world) = world().await else { return };
    world.run("INSERT INTO migrations (version, name, supports) VALUES (2, 'later', 2)").await;
    let why = world.starts().await.unwrap();
    for part in [world.schema.as_str(), "0002", "later", "0001"] {
        assert!(why.contains(part), "{why}");
    }
    world.run("UPDATE migrations SET supports = 1 WHERE version = 2").await;
    assert_eq!(world.starts().await, None, "it only adds something");
    world.run("INSERT INTO migrations (version, name, supports) VALUES (3, 'much_later', 2)").await;
    assert!(world.starts().await.unwrap().contains("much_later"));
}

#[tokio::test]
async fn a_missing_column_is_named_at_the_start() {
    let Some(mut world) = world().await else { return };
    let asked = "SELECT table_name::text, column_name::text
                 FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
                 WHERE table_schema = $1 AND table_type = 'BASE TABLE' AND table_name <> 'effects'";
    let query = sqlx::query_as::<_, (String, String)>(asked).bind(&world.schema);
    let columns = query.fetch_all(&mut world.other).await.unwrap();
    assert!(columns.len() > 25, "{columns:?}");
    for (table, column) in columns {
        world.run(&format!("ALTER TABLE {table} RENAME COLUMN {column} TO gone")).await;
        let why = world.starts().await.unwrap_or_else(|| panic!("it starts without {column} of {table}"));
        for part in [&world.schema, &table, &column, "Postgres::migrations()"] {
            assert!(why.contains(part), "{why}");
        }
        world.run(&format!("ALTER TABLE {table} RENAME COLUMN gone TO {column}")).await;
    }
    world.run("DROP TABLE inbox_messages CASCADE").await;
    assert!(world.starts().await.unwrap().contains("inbox_messages"));
}

#[tokio::test]
async fn the_error_for_a_trigger_that_is_not_always_enabled_names_the_statement_that_fixes_it() {
    let Some(mut world) = world().await else { return };
    let remedy = format!("ALTER TABLE \"{}\".processed_messages ENABLE ALWAYS TRIGGER refuse_commit", world.schema);
    // `pg_restore --disable-triggers` leaves it enabled, but not as ALWAYS.
    for enabled in ["DISABLE", "ENABLE REPLICA", "ENABLE"] {
        world.run(&format!("ALTER TABLE processed_messages {enabled} TRIGGER refuse_commit")).await;
        let why = world.starts().await.unwrap_or_else(|| panic!("it starts with {enabled}"));
        assert!(why.ends_with(&remedy), "{enabled}: {why}");
    }
    world.run(&remedy).await;
    assert_eq!(world.starts().await, None);
    world.run("DROP TRIGGER refuse_commit ON processed_messages").await;
    let why = world.starts().await.unwrap();
    assert!(why.contains("the deferrable trigger `refuse_commit`") && why.contains("Postgres::migrations()"), "{why}");
}

/// The application has a table of that name in `.schema("public")`.
#[tokio::test]
async fn a_foreign_table_with_a_name_of_idems_is_left_alone() {
    let Some(mut world) = world().await else { return };
    world.run(&format!("DROP SCHEMA {0} CASCADE; CREATE SCHEMA {0}", world.schema)).await;
    world.run("CREATE TABLE outbox_messages (mine text)").await;
    let why = why(Postgres::options(&world.url).schema(&world.schema).connect().await).unwrap();
    for part in [&world.schema, "\"outbox_messages\"", ".schema(..)", "rename"] {
        assert!(why.contains(part), "{why}");
    }
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
    assert_eq!(world.number(tables).await, 1, "a migration is applied whole or not at all");
    world.run("ALTER TABLE outbox_messages RENAME TO mine").await;
    Postgres::options(&world.url).schema(&world.schema).connect().await.unwrap();
    assert_eq!(world.starts().await, None);
}
