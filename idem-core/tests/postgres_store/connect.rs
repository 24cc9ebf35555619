//! Options, migration, checks, and the errors when they fail.

use std::time::Duration;

use idem_core::store::{ClaimState, Claims, CommitResult, Operator, Transactions};
use idem_core::{Error, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::world::{DEADLINE, fresh, url, world};

const SENTINEL: &str = "s3ntinel";

/// A role created for the test.
struct Role {
    name: String,
    url: String,
    admin: PgConnection,
}

impl Role {
    async fn create() -> Option<Self> {
        let url = url()?;
        let name = fresh("idem_role");
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let text = format!("CREATE ROLE {name} LOGIN PASSWORD '{SENTINEL}'");
        admin.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
        let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
        let url = options.username(&name).password(SENTINEL).to_url_lossy().to_string();
        Some(Self { name, url, admin })
    }

    async fn run(&mut self, sql: String) {
        self.admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    async fn end(mut self, schema: &str) {
        let name = self.name.clone();
        self.run(format!("DROP SCHEMA IF EXISTS {schema} CASCADE; DROP OWNED BY {name}; DROP ROLE {name}")).await;
    }
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Config(why)) => why,
        other => panic!("not refused: {other:?}"),
    }
}

/// The error in every form in which a user may print it.
fn told<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::Database { .. }), "{error:?}");
    let source = std::error::Error::source(&error).unwrap();
    let text = format!("{error} / {source} / {error:?}");
    assert!(!text.contains(SENTINEL), "{text}");
    text
}

#[tokio::test]
async fn ten_stores_that_connect_at_once_migrate_once() {
    let Some(url) = url() else { return };
    let schema = fresh("idem_test");
    let mut starts = Vec::new();
    for _ in 0..10 {
        let options = Postgres::options(&url).schema(&schema);
        starts.push(tokio::spawn(options.connect()));
    }
    for start in starts {
        start.await.unwrap().unwrap();
    }
    let mut admin = PgConnection::connect(&url).await.unwrap();
    let asked = format!("SELECT count(*) FROM {schema}.migrations");
    let applied: i64 = sqlx::query_scalar(AssertSqlSafe(asked)).fetch_one(&mut admin).await.unwrap();
    assert_eq!(applied, 1);
    admin.execute(sqlx::raw_sql(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE")))).await.unwrap();
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
        store.claim(&mut txn, &identity, ClaimState::Processed).await.unwrap();
        assert!(matches!(store.commit(txn).await, CommitResult::Done));
        store.prune().await.unwrap();
        Postgres::options(&url).schema(&name).verify_only().connect().await.unwrap();
        let text = format!("DROP SCHEMA \"{}\" CASCADE", name.replace('"', "\"\""));
        admin.execute(sqlx::raw_sql(AssertSqlSafe(text))).await.unwrap();
    }
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_with_the_cure() {
    let options = || Postgres::options("postgres://nobody@127.0.0.1:1/nothing");
    for schema in ["", &"x".repeat(64), "nul\0"] {
        assert!(refusal(options().schema(schema).connect().await).contains(".schema(..)"));
    }
    assert!(refusal(options().retention(Duration::ZERO).connect().await).contains(".retention(..)"));
    assert!(refusal(options().connections(0).connect().await).contains(".connections(..)"));
}

#[tokio::test]
async fn a_wrong_url_is_told_without_what_is_in_it() {
    for url in [
        format!("postgres://user:{SENTINEL}@host:port/db"),
        format!("mysql://user:{SENTINEL}@host/db"),
        SENTINEL.to_owned(),
        format!("postgres://user:12/{SENTINEL}@host/db"),
        format!("postgres://user:12?{SENTINEL}@host/db"),
        format!("postgres://user:12#{SENTINEL}@host/db"),
    ] {
        let text = told(Postgres::connect(&url).await);
        assert!(text.contains("postgres://user:password@host:5432/database"), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_named_without_the_password() {
    let text = told(Postgres::connect(&format!("postgres://me:{SENTINEL}@127.0.0.1:1/shop")).await);
    for part in ["127.0.0.1:1", "shop", "me"] {
        assert!(text.contains(part), "{text}");
    }
    let text = told(Postgres::connect(&format!("postgres://me:{SENTINEL}@%2Fnowhere:1/shop")).await);
    assert!(text.contains("/nowhere"), "{text}");
}

#[tokio::test]
async fn who_is_not_let_in_is_told_where_and_as_whom() {
    let Some(role) = Role::create().await else { return };
    let target: sqlx::postgres::PgConnectOptions = role.url.parse().unwrap();
    let server = format!("{}:{}", target.get_host(), target.get_port());
    let stranger = target.clone().username("idem_nobody").to_url_lossy().to_string();
    let nowhere = target.clone().database("idem_nowhere").to_url_lossy().to_string();
    let wrong = target.clone().password("wrong").to_url_lossy().to_string();
    for (url, part) in [(stranger, "idem_nobody"), (nowhere, "idem_nowhere"), (wrong, role.name.as_str())] {
        let answer = Postgres::options(&url).schema("idem_unused").verify_only().connect().await;
        if matches!(&answer, Err(Error::Config(_))) && part == role.name {
            eprintln!("skipped the wrong password: this server trusts everybody");
            continue;
        }
        let text = told(answer);
        assert!(text.contains(part) && text.contains(&server), "{text}");
    }
    role.end("idem_unused").await;
}

#[tokio::test]
async fn nothing_shows_the_password() {
    let Some(role) = Role::create().await else { return };
    let schema = fresh("idem_test");
    let options = Postgres::options(&role.url).schema(&schema);
    assert!(!format!("{options:?} {options:#?}").contains(SENTINEL));
    let why = refusal(options.connect().await);
    assert!(!why.contains(SENTINEL), "{why}");
    let mut role = role;
    role.run(format!("CREATE SCHEMA {schema} AUTHORIZATION {}", role.name)).await;
    // A role that may not create schemas migrates an existing schema that it owns.
    let store = Postgres::options(&role.url).schema(&schema).connect().await.unwrap();
    let txn = store.begin(DEADLINE).await.unwrap();
    let shown = format!("{store:?} {store:#?} {txn:?}");
    assert!(!shown.contains(SENTINEL) && shown.contains(&role.name), "{shown}");
    drop(txn);
    drop(store);
    role.end(&schema).await;
}

#[tokio::test]
async fn a_role_without_ddl_verifies_what_another_has_migrated() {
    let Some(mut role) = Role::create().await else { return };
    let Some(url) = url() else { return };
    let schema = fresh("idem_test");
    let name = role.name.clone();
    let ours = || Postgres::options(&role.url).schema(&schema);

    let why = refusal(ours().connect().await);
    let usage = format!("GRANT USAGE ON SCHEMA \"{schema}\" TO \"{name}\"");
    let tables = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA \"{schema}\" TO \"{name}\"");
    for part in ["`.verify_only()`", "`Postgres::migrations()`", &usage, &tables] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    let why = refusal(ours().verify_only().connect().await);
    for part in ["0001_claims_and_inbox.sql", "`Postgres::migrations()`", &usage, &tables] {
        assert!(why.contains(part), "{part} is not in {why}");
    }

    Postgres::options(&url).schema(&schema).connect().await.unwrap();
    let grants = [usage.clone(), format!("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name}")];
    for grant in [None].into_iter().chain(grants.map(Some)) {
        if let Some(grant) = grant {
            role.run(grant).await;
        }
        let why = refusal(Postgres::options(&role.url).schema(&schema).verify_only().connect().await);
        for part in [&schema, &name, &usage, &tables] {
            assert!(why.contains(part.as_str()), "{part} is not in {why}");
        }
        assert!(!why.contains("verify_only"), "it is set already: {why}");
    }
    role.run(tables).await;
    for options in [
        Postgres::options(&role.url).schema(&schema).verify_only(),
        // Nothing is missing, so nothing is created.
        Postgres::options(&role.url).schema(&schema),
    ] {
        let store = options.connect().await.unwrap();
        let handlers = store.register("billing", &["order_paid", "order_paid", "other"]).await.unwrap();
        assert_eq!(handlers[0], handlers[1]);
        assert_ne!(handlers[0], handlers[2]);
    }
    role.end(&schema).await;
}

/// The default search path is `"$user", public`: a schema with the role's name receives the tables that the application
/// creates.
#[tokio::test]
async fn a_schema_of_the_roles_own_name_is_refused_while_the_search_path_begins_with_it() {
    let Some(mut role) = Role::create().await else { return };
    let name = role.name.clone();
    role.run(format!(
        "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO {name}', current_database()); END $$"
    ))
    .await;
    let ours = |role: &Role| Postgres::options(&role.url).schema(&name);
    let why = refusal(ours(&role).connect().await);
    assert!(why.contains(&name) && why.contains(".schema(..)") && why.contains("SET search_path"), "{why}");
    let there = "SELECT count(*) FROM pg_namespace WHERE nspname = $1";
    let there: i64 = sqlx::query_scalar(there).bind(&name).fetch_one(&mut role.admin).await.unwrap();
    assert_eq!(there, 0, "nothing is left in the way of the application");

    role.run(format!("CREATE SCHEMA {name} AUTHORIZATION {name}")).await;
    refusal(ours(&role).connect().await);
    refusal(ours(&role).verify_only().connect().await);
    for path in ["public", &format!("{name}, public")] {
        role.run(format!("ALTER ROLE {name} SET search_path = {path}")).await;
        ours(&role).connect().await.unwrap();
    }
    role.end(&name).await;
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
async fn a_role_whose_commits_do_not_last_is_refused_unless_the_user_insists() {
    let Some(mut role) = Role::create().await else { return };
    let schema = fresh("idem_test");
    let name = role.name.clone();
    role.run(format!("CREATE SCHEMA {schema} AUTHORIZATION {name}; ALTER ROLE {name} SET synchronous_commit = off"))
        .await;
    let options = || Postgres::options(&role.url).schema(&schema);
    let why = refusal(options().connect().await);
    assert!(why.contains("synchronous_commit") && why.contains("ALTER ROLE"), "{why}");
    let store = options().allow_unsafe_durability().connect().await.unwrap();
    let mut txn = store.begin(DEADLINE).await.unwrap();
    let level = sqlx::query_scalar::<_, String>("SHOW synchronous_commit");
    assert_eq!(level.fetch_one(crate::world::lend(&mut txn)).await.unwrap(), "off");
    drop((txn, store));
    role.end(&schema).await;
}

#[tokio::test]
async fn an_unlogged_table_is_refused_unless_the_user_insists() {
    let Some(mut world) = world().await else { return };
    for table in ["processed_messages", "inbox_messages"] {
        let set = |how: &str| AssertSqlSafe(format!("ALTER TABLE {table} SET {how}"));
        world.other.execute(sqlx::raw_sql(set("UNLOGGED"))).await.unwrap();
        let options = || Postgres::options(&world.url).schema(&world.schema);
        let why = refusal(options().connect().await);
        assert!(why.contains(table) && why.contains("SET LOGGED"), "{why}");
        options().allow_unsafe_durability().connect().await.unwrap();
        world.other.execute(sqlx::raw_sql(set("LOGGED"))).await.unwrap();
    }
    world.end().await;
}

#[tokio::test]
async fn registering_again_burns_no_numbers() {
    let Some(mut world) = world().await else { return };
    for _ in 0..20 {
        world.store.register("billing", &["order_paid"]).await.unwrap();
    }
    world.store.register("billing", &["next"]).await.unwrap();
    assert_eq!(world.number("SELECT max(id)::bigint FROM handlers").await, 2);
    world.end().await;
}
