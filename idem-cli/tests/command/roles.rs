//! The roles that `idem roles --print` prints: each may do what it is for, and nothing else.

use idem_core::Postgres;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};

use crate::shop::night;
use crate::world::{Answer, OnPostgres, idem};

const ROLES: [&str; 4] = ["idem_migrator", "idem_worker", "idem_operator", "idem_viewer"];

/// The printed roles in a schema, under names of the test's own, since the roles of a server are shared by all its databases.
struct Roles {
    schema: String,
    server: String,
    admin: PgConnection,
}

impl Roles {
    /// Runs the SQL as it is printed: its second part when the tables are there.
    async fn create(schema: &str) -> Option<Self> {
        let server = idem_conformance::server("DATABASE_URL")?;
        let admin = PgConnection::connect(&server).await.unwrap();
        let mut roles = Self { schema: schema.to_owned(), server, admin };
        let printed = idem("", schema, &["roles", "--print"]).await.out;
        let (before, after) = printed.split_once("-- The rest once the tables are there.").unwrap();
        roles.run(before).await;
        for role in ROLES {
            let login = roles.login(role);
            roles.run(&format!("CREATE ROLE {login} LOGIN PASSWORD 'idem' IN ROLE {role}")).await;
        }
        roles.idem("idem_migrator", &["migrate"]).await.check(0, &["0001_tables.sql"]);
        roles.run(after).await;
        Some(roles)
    }

    fn named(&self, sql: &str) -> String {
        let own = |role: &str| role.replace("idem_", &format!("{}_role_", self.schema));
        ROLES.iter().fold(sql.to_owned(), |sql, role| sql.replace(role, &own(role)))
    }

    fn login(&self, role: &str) -> String {
        role.replace("idem_", &format!("{}_login_", self.schema))
    }

    async fn run(&mut self, sql: &str) {
        let text = self.named(sql);
        sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut self.admin).await.unwrap();
    }

    fn url(&self, role: &str) -> String {
        let options: PgConnectOptions = self.server.parse().unwrap();
        options.username(&self.login(role)).password("idem").to_url_lossy().to_string()
    }

    async fn idem(&self, role: &str, args: &[&str]) -> Answer {
        idem(&self.url(role), &self.schema, args).await
    }

    async fn end(mut self) {
        self.run(&format!("DROP SCHEMA {} CASCADE", self.schema)).await;
        for role in ROLES {
            let login = self.login(role);
            self.run(&format!("DROP OWNED BY {login}, {role}; DROP ROLE {login}, {role}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_printed_role_may_do_what_it_is_for() {
    let schema = format!("idem_cli_{:016x}", uuid::Uuid::new_v4().as_u64_pair().0);
    let Some(roles) = Roles::create(&schema).await else { return };
    // A worker runs with the rights of its role alone.
    Postgres::options(roles.url("idem_worker")).schema(&schema).verify_only().connect().await.unwrap();
    let Some(mut world) = OnPostgres::in_schema(&schema).await else { return };
    night!(world, postgres);
    let [dead, other, conflict] = [
        "SELECT min(id) FROM {inbox_messages} WHERE reason = 'exhausted'",
        "SELECT max(id) FROM {inbox_messages} WHERE reason = 'exhausted'",
        "SELECT min(id) FROM {inbox_messages} WHERE reason = 'conflict'",
    ];
    let dead = world.number(dead).await.to_string();
    let other = world.number(other).await.to_string();
    let conflict = world.number(conflict).await.to_string();
    let key = "9513c1b4-5c2d-4d3c-8a55-4be7d8a0b1a1";

    // The exit codes of the viewer and of the operator, in this order.
    let cases: [(&[&str], i32, i32); 20] = [
        (&["status"], 10, 10),
        (&["why", "shop/ship", "8"], 11, 11),
        (&["dead", "list"], 0, 0),
        (&["dead", "group"], 0, 0),
        (&["dead", "show", &dead], 0, 0),
        (&["scheduled"], 1, 1),
        (&["outbox", "list"], 0, 0),
        (&["outbox", "list", "office", "--waiting"], 0, 0),
        (&["calls"], 1, 1),
        (&["workers"], 0, 0),
        (&["doctor"], 10, 10),
        (&["dead", "replay", &dead], 4, 0),
        (&["dead", "replay", &conflict, "--as", "another"], 4, 0),
        (&["dead", "discard", &other, "--yes"], 4, 0),
        (&["forget", "shop/ship", "8", "--yes"], 4, 0),
        (&["outbox", "replay", "office", "1"], 4, 1),
        (&["outbox", "discard", "office", "1", "--yes"], 4, 1),
        (&["calls", "resolve", &dead, "--key", key, "--again"], 4, 1),
        (&["prune"], 4, 0),
        (&["operations"], 1, 0),
    ];
    for (args, exit, _) in cases {
        let answer = roles.idem("idem_viewer", args).await;
        answer.check(
            exit,
            if exit == 4 { &["permission denied", "it may use: status", "idem roles --print"] } else { &[] },
        );
    }
    // What this role may not do is no fault of the setup.
    let found = roles.idem("idem_viewer", &["doctor"]).await;
    assert!(!found.out.contains("could not start"), "{found:?}");
    for (args, _, exit) in cases {
        roles.idem("idem_operator", args).await.check(exit, &[]);
    }
    drop(world);
    roles.end().await;
}
