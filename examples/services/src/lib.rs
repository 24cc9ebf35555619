//! Compiles the guide of requests, and has what its code leaves out. The facade cannot do it: it has no axum, for which the first
//! example would wait.

#[cfg(doctest)]
#[doc = include_str!("../../../src/docs/requests.md")]
mod requests {}

use axum::extract::Request;
use axum::http::request::Parts;
use axum::middleware::Next;
use idem::prelude::*;
use serde::{Deserialize, Serialize};

pub use axum::http::{StatusCode, header::LOCATION};
pub use axum::middleware::from_fn;
pub use axum::response::{IntoResponse, Response};
pub use axum::routing::post;
pub use axum::{Json, Router};
pub use idem::http::{Outbox, Requests, Tx};
pub use idem::{Postgres, Source, Worker};
pub use sqlx::PgConnection;
pub use tokio::net::TcpListener;

/// The body of a request.
#[derive(Debug, Deserialize)]
pub struct NewPayment {
    /// The amount.
    pub cents: i64,
}

/// Its reply.
#[derive(Debug, Serialize)]
pub struct Payment {
    id: i64,
}

/// The message to [`charge_payment`].
#[derive(Debug, Serialize, Deserialize)]
pub struct ChargePayment {
    /// That of the payment.
    pub id: i64,
    /// The amount.
    pub cents: i64,
}

/// Why a handler fails.
#[derive(Debug)]
pub struct AppError(BoxError);

impl<E: Into<BoxError>> From<E> for AppError {
    fn from(error: E) -> Self {
        Self(error.into())
    }
}

impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0.to_string()).into_response()
    }
}

/// Puts the tenant into the extensions of a request.
pub async fn authenticate(mut request: Request, next: Next) -> Response {
    request.extensions_mut().insert("acme".to_owned());
    next.run(request).await
}

/// The tenant of a request.
///
/// # Errors
/// It has none.
pub fn tenant_of(parts: &Parts) -> Result<String, &'static str> {
    parts.extensions.get().cloned().ok_or("no tenant")
}

/// Inserts a payment.
///
/// # Errors
/// Those of the database.
pub async fn insert(tx: &mut PgConnection, new: &NewPayment) -> Result<Payment, sqlx::Error> {
    let insert = sqlx::query_scalar("INSERT INTO payments (cents) VALUES ($1) RETURNING id");
    Ok(Payment { id: insert.bind(new.cents).fetch_one(tx).await? })
}

impl Payment {
    /// Its number.
    pub fn id(&self) -> i64 {
        self.id
    }
}

/// Charges a payment, at a bank that does not exist.
#[external(key_life = "24h")]
pub async fn charge(payment: &ChargePayment, key: OutboundKey) -> Result<String, CallError> {
    Err(CallError::not_done(format!("no bank for {} of the payment {key}", payment.cents)))
}

/// Records that a payment was charged.
#[idempotent(key = "id", name = "charge_payment", call = charge)]
pub async fn charge_payment(payment: ChargePayment, tx: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE payments SET charged = true WHERE id = $1").bind(payment.id).execute(tx).await.map(drop)
}
