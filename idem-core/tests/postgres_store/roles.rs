//! Roles of the database: what they may do, and how their commits last.

use idem_core::store::{By, Consumers, Of, OutboxRows, Question, Replay, Resolution, StoreError, Transactions};
use idem_core::{Error, Postgres};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::connect::{SENTINEL, error_text, refusal};
use crate::world::{DEADLINE, fresh, url};

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

#[tokio::test]
async fn a_refused_login_names_the_server_and_the_role() {
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
        let text = error_text(answer);
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
    for part in ["0001_tables.sql", "`Postgres::migrations()`", &usage, &tables] {
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
    // One table is enough: prune could not record its place, for example.
    role.run(tables).await;
    for table in ["pruner", "outbox_messages", "call_namespaces", "operations"] {
        role.run(format!("REVOKE UPDATE ON {schema}.{table} FROM {name}")).await;
        let why = refusal(Postgres::options(&role.url).schema(&schema).verify_only().connect().await);
        assert!(why.contains(&format!("\"{table}\"")), "{why}");
        role.run(format!("GRANT UPDATE ON {schema}.{table} TO {name}")).await;
    }
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
    assert_eq!(level.fetch_one(crate::world::handler_connection(&mut txn)).await.unwrap(), "on");
    drop((txn, store));
    role.end(&schema).await;
}

/// Its role may lose commits, too: an operator acks no message.
#[tokio::test]
async fn a_role_that_only_reads_asks_and_is_told_what_it_may_not_do() {
    let Some(mut role) = Role::create().await else { return };
    let Some(owner) = url() else { return };
    let schema = fresh("idem_test");
    let (name, url) = (role.name.clone(), role.url.clone());
    let owner = Postgres::options(owner).schema(&schema).connect().await.unwrap();
    owner.register("billing", &["order_paid"]).await.unwrap();
    let outbox = owner.register_outbox("billing").await.unwrap();
    role.run(format!("ALTER ROLE {name} SET synchronous_commit = off; GRANT USAGE ON SCHEMA {schema} TO {name}")).await;
    let options = || Postgres::options(&url).schema(&schema).for_operator();
    let select = format!("GRANT SELECT ON ALL TABLES IN SCHEMA \"{schema}\" TO \"{name}\"");
    let why = refusal(options().connect().await);
    assert!(why.contains(&select), "{why}");
    role.run(select).await;
    role.run(format!("REVOKE SELECT ON {schema}.operations FROM {name}")).await;
    let why = refusal(options().connect().await);
    assert!(why.contains("\"operations\"") && !why.contains("INSERT"), "{why}");
    role.run(format!("GRANT SELECT ON {schema}.operations TO {name}")).await;

    let store = options().connect().await.unwrap();
    assert_eq!(store.handlers(Some("billing")).await.unwrap().len(), 1);
    let limit = Question::new("limit", "SELECT current_setting('statement_timeout')", "");
    let minute = limit.patience(std::time::Duration::from_secs(60));
    assert_eq!(Consumers::ask(&store, &minute, &[]).await.unwrap(), ["1min"], "longer than other statements may take");
    let forget = Question::new("forget", "DELETE FROM {schema}.handlers RETURNING name", "").writes();
    let (ids, by) = ([1], By::new("anna"));
    for refused in [
        store.replay(Of::all(&ids), Replay::Plain, &by).await.map(drop),
        store.resolve(Of::all(&ids), None, &Resolution::Discard, &by).await.map(drop),
        store.remove_dead_outgoing(outbox, &ids, true, &by).await.map(drop),
        Consumers::ask(&store, &forget, &[]).await.map(drop),
        store.prune().await.map(drop),
    ] {
        assert!(
            matches!(&refused, Err(StoreError::Denied(error)) if error.to_string().contains("42501")),
            "{refused:?}"
        );
    }
    drop((store, owner));
    role.end(&schema).await;
}
