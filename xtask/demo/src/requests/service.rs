//! The service that is killed, as a user writes it; and two middlewares that commit the reply after the effect: a hand-written one,
//! and `axum-idempotent`.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use idem::Postgres;
use idem::http::{Requests, Tx};
use ruts::{CookieOptions, SessionLayer};
use sqlx::PgConnection;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::net::TcpListener;
use tower_cookies::CookieManagerLayer;

use super::sessions::Sessions;
use crate::processes::DATABASE;
use crate::tables::SCHEMA;
use crate::worker::end_of_input;

/// Serves until the standard input ends.
pub(crate) async fn serve(port: u16) -> Result<()> {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let url = std::env::var(DATABASE).with_context(|| format!("{DATABASE} is not set: run cargo xtask demo"))?;
    let store = Postgres::options(&url).schema(SCHEMA).connections(20).connect().await?;
    let pool = PgPoolOptions::new().max_connections(20).connect(&url).await?;
    let requests = Requests::new("demo-api", store).one_scope_for_everyone().required();
    let app = Router::new()
        .route("/payments", post(pay))
        .route_layer(requests.layer())
        .route("/two-commits", post(pay_and_reply))
        .merge(in_session(&pool))
        .with_state(pool);
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let mut over = end_of_input();
    let ended = async move { _ = over.wait_for(|over| *over).await };
    axum::serve(listener, app).with_graceful_shutdown(ended).await?;
    requests.finished().await;
    Ok(())
}

/// A route of `axum-idempotent`, by the key that the client has sent.
fn in_session(pool: &PgPool) -> Router<PgPool> {
    let by_key = IdempotentOptions::default().expire_after(3600).use_idempotency_key_header(Some("idempotency-key"));
    let sessions = SessionLayer::new(Arc::new(Sessions(pool.clone())));
    Router::new()
        .route("/axum-idempotent", post(pay_alone))
        .layer(IdempotentLayer::<Sessions>::new(by_key))
        .layer(sessions.with_cookie_options(CookieOptions::build().name("session")))
        .layer(CookieManagerLayer::new())
}

/// Inserts a payment. Its number, and so the reply, differs each time.
async fn insert(connection: &mut PgConnection, request: &str) -> Result<String> {
    let insert = sqlx::query_scalar("INSERT INTO demo.payments (request) VALUES ($1) RETURNING id");
    let id: i64 = insert.bind(request.parse::<i64>()?).fetch_one(connection).await?;
    pause().await;
    Ok(format!("payment {id}"))
}

/// Some of the time in which a process may be killed.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(fastrand::u64(..3))).await;
}

async fn pay(mut tx: Tx<PgConnection>, request: String) -> Result<String, Failed> {
    Ok(insert(&mut tx, &request).await?)
}

/// Looks for a reply, commits the effect, and then the reply.
async fn pay_and_reply(State(pool): State<PgPool>, headers: HeaderMap, request: String) -> Result<String, Failed> {
    let key = headers.get("idempotency-key").context("no key")?.to_str()?;
    let known = sqlx::query_scalar("SELECT reply FROM demo.replies WHERE key = $1").bind(key);
    if let Some(reply) = known.fetch_optional(&pool).await? {
        return Ok(reply);
    }
    let reply = pay_alone(State(pool.clone()), request).await?;
    let keep = sqlx::query("INSERT INTO demo.replies VALUES ($1, $2) ON CONFLICT DO NOTHING");
    keep.bind(key).bind(&reply).execute(&pool).await?;
    Ok(reply)
}

/// Commits the effect.
async fn pay_alone(State(pool): State<PgPool>, request: String) -> Result<String, Failed> {
    let mut tx = pool.begin().await?;
    let reply = insert(&mut tx, &request).await?;
    tx.commit().await?;
    pause().await;
    Ok(reply)
}

struct Failed(anyhow::Error);

impl<E: Into<anyhow::Error>> From<E> for Failed {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        eprintln!("a request has failed: {:#}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
