//! The callback for credentials, without a server.

use super::*;
use crate::error::text;

const SENTINEL: &str = "s3ntinel";

fn login<A>(ask: impl Fn(PgConnectOptions) -> A + Send + Sync + 'static) -> Login
where
    A: Future<Output = Result<PgConnectOptions, BoxError>> + Send + 'static,
{
    let target = PgConnectOptions::new_without_pgpass().host("db").username("billing").password(SENTINEL);
    Login { target, credentials: Some(Arc::new(move |options| Box::pin(ask(options)))) }
}

async fn described(login: &Login) -> String {
    let failure = login.options().await.unwrap_err();
    let described = format!("{failure:?}");
    let error = failure.into_error();
    let described = format!("{described} / {}", text(error.as_ref()));
    assert!(described.contains("`.credentials(..)`") && !described.contains(SENTINEL), "{described}");
    described
}

#[test]
fn no_statement_is_logged_since_the_text_of_idems_has_payloads() {
    let options = format!("{:?}", parse("postgres://billing@db/shop").unwrap());
    assert_eq!(options.matches("statements_level: Off").count(), 2, "those that are slow, and all others: {options}");
}

#[tokio::test]
async fn a_callback_gets_the_options_of_the_url_and_its_own_are_used() {
    let login = login(|options| async move { Ok(options.username("fresh")) });
    let options = login.options().await.unwrap();
    assert_eq!((options.get_host(), options.get_username()), ("db", "fresh"));
}

#[tokio::test]
async fn an_error_of_the_callback_is_reported_with_its_cause() {
    let described = described(&login(|_| async { Err("the token service is away".into()) })).await;
    assert!(described.contains("has failed: the token service is away"), "{described}");
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_does_not_answer_is_given_up() {
    let began = tokio::time::Instant::now();
    let described = described(&login(|_| std::future::pending())).await;
    assert!(described.contains("within 5 seconds"), "{described}");
    assert!(began.elapsed() < CONNECT * 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_panic_of_the_callback_is_its_error() {
    let described = described(&login(|_| async { panic!("no region") })).await;
    assert!(described.contains("panicked: no region"), "{described}");
}

#[tokio::test]
async fn a_callback_that_panics_before_its_future_is_caught_too() {
    fn ask(_: PgConnectOptions) -> std::future::Pending<Result<PgConnectOptions, BoxError>> {
        panic!("no region")
    }
    let described = described(&login(ask)).await;
    assert!(described.contains("panicked: no region"), "{described}");
}

#[test]
fn the_name_of_the_database_shows_no_user_that_the_callback_replaces() {
    let name = login(|options| async { Ok(options) }).name();
    assert!(name.contains("at db:") && name.contains("user of the callback") && !name.contains(SENTINEL), "{name}");
}
