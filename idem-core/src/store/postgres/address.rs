//! The URL of the database.

use std::str::FromStr;

use sqlx::postgres::PgConnectOptions;

use crate::{BoxError, Error};

/// Parses the URL. The error does not repeat it, since it may contain a password.
pub(super) fn parse(url: &str) -> Result<PgConnectOptions, Error> {
    let wrong = |source: BoxError| Error::Database {
        what: "the database URL cannot be read: it should look like postgres://user:password@host:5432/database".into(),
        source,
    };
    let Some(rest) = ["postgres://", "postgresql://"].iter().find_map(|scheme| url.strip_prefix(scheme)) else {
        return Err(wrong("it does not begin with postgres://".into()));
    };
    // A slash, question mark or hash in the password ends the host for a parser, which would take the rest for the name
    // of a database, which is not secret.
    let authority = rest.find(['/', '?', '#']).map_or(rest, |end| &rest[..end]);
    if rest.contains('@') && !authority.contains('@') {
        return Err(wrong("the URL has an `@` after the host: percent-encode the password (`/` is %2F)".into()));
    }
    PgConnectOptions::from_str(url).map_err(|error| wrong(error.into()))
}
