//! The extractors of axum.

use std::fmt;

use axum::extract::FromRequestParts;
use axum::response::{IntoResponse, Response};
use http::request::Parts;

use crate::lend::{Outbox, Tx, TxError};
use crate::problem::Problem;
use crate::reply::Reply;

/// Why a handler does not get an argument: a mistake in the program, of which the client hears nothing but the status 500.
#[derive(Debug)]
pub struct Rejected(TxError);

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Rejected {}

impl IntoResponse for Rejected {
    fn into_response(self) -> Response {
        tracing::error!("{self}");
        Problem::Failed.response()
    }
}

impl<C: Send + 'static, St: Sync> FromRequestParts<St> for Tx<C> {
    type Rejection = Rejected;

    async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Self, Rejected> {
        Self::of(&parts.extensions).map_err(Rejected)
    }
}

impl<St: Sync> FromRequestParts<St> for Outbox {
    type Rejection = Rejected;

    async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Self, Rejected> {
        parts.extensions.get().cloned().ok_or(Rejected(TxError::NoTransaction))
    }
}

impl<St: Sync> FromRequestParts<St> for Reply {
    type Rejection = Rejected;

    async fn from_request_parts(parts: &mut Parts, _: &St) -> Result<Self, Rejected> {
        parts.extensions.get().cloned().ok_or(Rejected(TxError::NoTransaction))
    }
}
