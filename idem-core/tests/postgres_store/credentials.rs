//! Fresh credentials from a callback, for each login.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use idem_core::store::postgres::PostgresOptions;
use idem_core::store::{CommitResult, Consumers, StoreError, Transactions};
use idem_core::{BoxError, Postgres};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use crate::connect::{SENTINEL, error_text};
use crate::sessions::state;
use crate::world::{DEADLINE, fresh, handler_connection, url};

/// The source of the credentials: what the callback does next.
#[derive(Clone)]
struct Vault(Arc<(Mutex<Answer>, AtomicUsize)>);

#[derive(Clone)]
enum Answer {
    Password(String),
    Fails,
    Panics,
}

impl Vault {
    fn of(password: &str) -> Self {
        Self(Arc::new((Mutex::new(Answer::Password(password.to_owned())), AtomicUsize::new(0))))
    }

    fn set(&self, answer: Answer) {
        *self.0.0.lock().unwrap() = answer;
    }

    fn asked(&self) -> usize {
        self.0.1.load(SeqCst)
    }

    fn ask(&self, options: PgConnectOptions) -> Result<PgConnectOptions, BoxError> {
        self.0.1.fetch_add(1, SeqCst);
        let answer = self.0.0.lock().unwrap().clone();
        match answer {
            Answer::Password(password) => Ok(options.password(&password)),
            Answer::Fails => Err("the vault is sealed".into()),
            Answer::Panics => panic!("no region"),
        }
    }

    /// Options that ask it.
    fn options(&self, place: &Place) -> PostgresOptions {
        let vault = self.clone();
        Postgres::options(place.url("unknown")).schema(&place.schema).credentials(move |options| {
            let vault = vault.clone();
            async move { vault.ask(options) }
        })
    }
}

/// A role with a password and a schema.
struct Place {
    target: PgConnectOptions,
    role: String,
    schema: String,
    admin: PgConnection,
}

impl Place {
    async fn create() -> Option<Self> {
        let url = url()?;
        let (role, schema) = (fresh("idem_role"), fresh("idem_test"));
        let admin = PgConnection::connect(&url).await.unwrap();
        let mut place = Self { target: url.parse().unwrap(), role, schema, admin };
        let (role, schema) = (&place.role, &place.schema);
        let text = format!(
            "CREATE ROLE {role} LOGIN PASSWORD '{SENTINEL}'; CREATE SCHEMA {schema} AUTHORIZATION {role};
             CREATE TABLE {schema}.effects (what text NOT NULL); ALTER TABLE {schema}.effects OWNER TO {role}"
        );
        place.run(text).await;
        Some(place)
    }

    async fn run(&mut self, sql: String) {
        self.admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }

    fn url(&self, password: &str) -> String {
        self.target.clone().username(&self.role).password(password).to_url_lossy().to_string()
    }

    async fn rotate(&mut self, password: &str) {
        self.run(format!("ALTER ROLE {} PASSWORD '{password}'", self.role)).await;
    }

    async fn end(mut self) {
        let Self { role, schema, .. } = &self;
        self.run(format!("DROP SCHEMA {schema} CASCADE; DROP OWNED BY {role}; DROP ROLE {role}")).await;
    }
}

/// The error of a login, in every form in which it may be logged.
fn lost<T>(answer: Result<T, StoreError>) -> String {
    let Err(StoreError::ConnectionLost(error)) = answer else { panic!("the login did not fail") };
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    let text = format!("{error} / {source} / {error:?}");
    assert!(!text.contains(SENTINEL) && !text.contains("n3xt"), "{text}");
    text
}

/// Opens this many connections at once, each with a transaction that writes.
async fn logins(store: &Postgres, schema: &str, many: usize) {
    let mut open = Vec::new();
    for _ in 0..many {
        let mut txn = store.begin(DEADLINE).await.unwrap();
        crate::world::effect(schema, handler_connection(&mut txn)).await;
        open.push(txn);
    }
    for txn in open {
        assert!(matches!(store.commit(txn).await, CommitResult::Done));
    }
}

#[tokio::test]
async fn a_password_that_changes_while_the_store_runs_is_asked_for_at_the_next_login() {
    let Some(mut place) = Place::create().await else { return };
    let vault = Vault::of(SENTINEL);
    let store = vault.options(&place).connect().await.unwrap();
    let fixed = Postgres::options(place.url(SENTINEL)).schema(&place.schema).connect().await.unwrap();

    place.rotate("n3xt").await;
    // The connections that are open stay logged in, and the next login needs the next password.
    fixed.prune().await.unwrap();
    let refused = lost(fixed.begin(DEADLINE).await);
    assert!(refused.contains(&place.role) && !refused.contains("credentials"), "{refused}");
    let stale = lost(store.begin(DEADLINE).await);
    assert!(stale.contains(&place.role) && stale.contains("check what the callback"), "{stale}");

    vault.set(Answer::Password("n3xt".to_owned()));
    logins(&store, &place.schema, 5).await;
    store.ping().await.unwrap();
    drop((store, fixed));
    place.end().await;
}

/// The URL has a wrong password, so a login past the callback would fail.
#[tokio::test]
async fn every_login_asks_the_callback() {
    let Some(place) = Place::create().await else { return };
    let vault = Vault::of(SENTINEL);
    let store = vault.options(&place).connections(5).connect().await.unwrap();
    let asked = vault.asked();
    assert_eq!(asked, 1, "the connection that migrates");
    store.register("billing", &["order_paid"]).await.unwrap();
    assert_eq!(vault.asked(), asked, "it is reused");
    // A connection for idem's statements while another one is in use, and one for a ping.
    tokio::try_join!(store.ping(), store.ping(), store.prune()).map_err(|error| format!("{error:?}")).unwrap();
    let own = vault.asked();
    assert!(own > asked, "{own}");
    logins(&store, &place.schema, 3).await;
    assert_eq!(vault.asked(), own + 3);
    drop(store);
    place.end().await;
}

#[tokio::test]
async fn a_callback_that_fails_refuses_the_start_with_the_remedy() {
    let Some(place) = Place::create().await else { return };
    for (answer, why) in [(Answer::Fails, "the vault is sealed"), (Answer::Panics, "no region")] {
        let vault = Vault::of("");
        vault.set(answer);
        let text = error_text(vault.options(&place).connect().await);
        assert!(text.contains("`.credentials(..)`") && text.contains(why), "{text}");
        assert!(text.contains(&place.target.get_port().to_string()), "{text}");
    }
    let text = error_text(Vault::of("wrong").options(&place).connect().await);
    assert!(text.contains("check what the callback given to `.credentials(..)` returns"), "{text}");
    place.end().await;
}

#[tokio::test]
async fn a_callback_that_fails_while_the_store_runs_is_a_lost_connection_and_closes_no_other() {
    let Some(place) = Place::create().await else { return };
    let vault = Vault::of(SENTINEL);
    let store = vault.options(&place).connect().await.unwrap();
    logins(&store, &place.schema, 2).await;
    for (answer, why) in [(Answer::Fails, "the vault is sealed"), (Answer::Panics, "no region")] {
        vault.set(answer);
        let first = store.begin(DEADLINE).await.unwrap();
        let second = store.begin(DEADLINE).await.unwrap();
        let text = lost(store.begin(DEADLINE).await);
        assert!(text.contains(why), "{text}");
        store.rollback(first).await.unwrap();
        store.rollback(second).await.unwrap();
        let asked = vault.asked();
        // The idle ones are there still, for handlers and for idem.
        logins(&store, &place.schema, 2).await;
        store.ping().await.unwrap();
        assert_eq!(vault.asked(), asked);
    }
    vault.set(Answer::Password(SENTINEL.to_owned()));
    logins(&store, &place.schema, 5).await;
    drop(store);
    place.end().await;
}

#[tokio::test]
async fn settings_of_the_callback_are_those_of_the_session_and_idems_come_after_them() {
    let Some(mut place) = Place::create().await else { return };
    let login = fresh("idem_login");
    place.run(format!("CREATE ROLE {login} LOGIN PASSWORD 'n3xt' IN ROLE {}", place.role)).await;
    let (user, role) = (login.clone(), place.role.clone());
    let options = Postgres::options(place.url("unknown")).schema(&place.schema).connections(2);
    let store = options
        .credentials(move |options| {
            let options = options.username(&user).password("n3xt").application_name("callback").options([
                ("role", role.as_str()),
                ("app.tenant", "acme"),
                ("default_transaction_read_only", "off"),
                ("tcp_keepalives_idle", "99"),
            ]);
            async move { Ok(options) }
        })
        .connect()
        .await
        .unwrap();
    let asked =
        "SELECT concat_ws(' ', current_user, current_setting('app.tenant'), current_setting('application_name'),
                     current_setting('default_transaction_read_only'), current_setting('tcp_keepalives_idle'))";
    let expected = format!("{} acme callback on 10", place.role);
    let mut clean = None;
    for abuse in ["SET app.tenant = 'other'", "RESET ROLE; SELECT 1", "SET LOCAL ROLE NONE", "RESET ALL"] {
        let mut txn = store.begin(DEADLINE).await.unwrap();
        let found: String = sqlx::query_scalar(asked).fetch_one(handler_connection(&mut txn)).await.unwrap();
        assert_eq!(found, expected, "before {abuse}");
        let now = state(&mut txn).await;
        assert_eq!(clean.get_or_insert_with(|| now.clone()), &now);
        handler_connection(&mut txn).execute(sqlx::raw_sql(abuse)).await.unwrap();
        let _ = store.commit(txn).await;
    }
    drop(store);
    place.run(format!("DROP ROLE {login}")).await;
    place.end().await;
}

#[tokio::test]
async fn nothing_shows_the_callback_or_what_it_returns() {
    let Some(place) = Place::create().await else { return };
    let options = Vault::of(SENTINEL).options(&place);
    let shown = format!("{options:?}");
    let store = options.connect().await.unwrap();
    let txn = store.begin(DEADLINE).await.unwrap();
    let shown = format!("{shown} {store:?} {txn:?}");
    assert!(!shown.contains(SENTINEL) && shown.contains("credentials: true"), "{shown}");
    drop((txn, store));
    place.end().await;
}
