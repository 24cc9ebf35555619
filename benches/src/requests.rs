//! HTTP requests: a handler in the layer, compared to the same handler with a transaction of its own; and repeats.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use idem::Postgres;
use idem::http::{Requests, Tx};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;
use tower_service::Service as _;
use uuid::Uuid;

use crate::message::{self, EFFECT, HAND_WRITTEN, IDEM, SCHEMA};
use crate::samples::{median, range};

/// Short ones, in turn: what else the machine does then slows down both sides alike.
const ROUNDS: usize = 25;
const REQUESTS: usize = 4_000;

/// How many requests are under way, and how many connections each side has.
const AT_ONCE: usize = 16;

/// The part of the rate of the handler with its own transaction that has to be reached.
const TARGET: f64 = 0.9;
/// How many repeats a second have to be answered.
const REPEATS: f64 = 10_000.0;

async fn effect(connection: &mut PgConnection, side: i32) -> Result<(), StatusCode> {
    let insert = sqlx::query(EFFECT).bind(side).bind(7_i64).bind(2500_i64).execute(connection).await;
    insert.map(drop).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

async fn in_layer(mut tx: Tx<PgConnection>) -> Result<&'static str, StatusCode> {
    effect(&mut tx, IDEM).await?;
    Ok("paid")
}

async fn plain(State(pool): State<PgPool>) -> Result<&'static str, StatusCode> {
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    let mut tx = pool.begin().await.map_err(failed)?;
    effect(&mut tx, HAND_WRITTEN).await?;
    tx.commit().await.map_err(failed)?;
    Ok("paid")
}

/// Measures and prints the results, and returns 0 if the targets are reached, else 1.
pub(crate) async fn measure(url: &str) -> Result<u8> {
    let mut conn = PgConnection::connect(url).await?;
    message::tables(&mut conn).await?;
    let store = Postgres::options(url).schema(SCHEMA).connections(AT_ONCE).connect().await?;
    let pool = PgPoolOptions::new().max_connections(AT_ONCE.try_into()?).connect(url).await?;
    let requests = Requests::new("bench-api", store).one_scope_for_everyone().required();
    let app = Router::new().route("/layer", post(in_layer)).route_layer(requests.layer());
    let app = app.route("/plain", post(plain)).with_state(pool);

    let (mut ratios, mut rates, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
    // The first round warms up.
    for round in 0..=ROUNDS {
        let keys: Arc<[String]> = (0..REQUESTS).map(|_| Uuid::new_v4().to_string()).collect();
        let plain = rate(&app, "/plain", &keys).await?;
        let layer = rate(&app, "/layer", &keys).await?;
        let again = rate(&app, "/layer", &keys).await?;
        if round > 0 {
            ratios.push(layer / plain);
            rates.push(layer);
            repeats.push(again);
        }
    }
    let (ratio, repeat) = (median(ratios.clone()), median(repeats));
    let (low, high) = range(ratios.into_iter());
    println!(
        "{AT_ONCE} requests at once: {:.0} a second in the layer, {ratio:.2} of a handler with its own transaction, median of \
         {ROUNDS} rounds ({low:.2} to {high:.2}), and the target {TARGET}; {repeat:.0} repeats a second, and the target {REPEATS:.0}",
        median(rates)
    );
    Ok(u8::from(ratio < TARGET || repeat < REPEATS))
}

/// Sends a request for each key, without a socket, which would cost both sides the same. Returns how many per second.
async fn rate(app: &Router, path: &'static str, keys: &Arc<[String]>) -> Result<f64> {
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..AT_ONCE {
        let (mut app, keys) = (app.clone(), keys.clone());
        clients.spawn(async move {
            for key in keys.iter().skip(client).step_by(AT_ONCE) {
                let request = Request::post(path).header("idempotency-key", key).body(Body::empty())?;
                let status = app.call(request).await.map(|answer| answer.status())?;
                ensure!(status == StatusCode::OK, "{path} has answered {status}");
            }
            Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client.context("a client has ended")??;
    }
    Ok(keys.len() as f64 / began.elapsed().as_secs_f64())
}
