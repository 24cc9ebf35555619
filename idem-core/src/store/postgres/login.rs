//! How connections log in.

use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgDatabaseError};
use tokio::time::timeout;

use crate::caught::caught;
use crate::{BoxError, Error};

use super::answer::Failure;
use super::limits::CONNECT;

/// The options of each login: those of the URL, which a callback may change.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) target: PgConnectOptions,
    pub(super) credentials: Option<Callback>,
}

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
    // The text of idem's statements has keys and payloads, and sqlx logs each text whose answer takes a second, as a warning.
    PgConnectOptions::from_str(url).map(ConnectOptions::disable_statement_logging).map_err(|error| wrong(error.into()))
}

/// A callback of the user.
pub(super) type Callback = Arc<dyn Fn(PgConnectOptions) -> Asking + Send + Sync>;

type Asking = Pin<Box<dyn Future<Output = Result<PgConnectOptions, BoxError>> + Send>>;

impl Login {
    /// Returns the options of one login.
    pub(super) async fn options(&self) -> Result<PgConnectOptions, Failure> {
        let Some(credentials) = &self.credentials else { return Ok(self.target.clone()) };
        // The call itself is user code as well, so it is made within the future.
        let asked = async { credentials(self.target.clone()).await };
        let asked = timeout(CONNECT, caught("the callback given to `.credentials(..)`", asked)).await;
        // None of the texts contains what the callback returned.
        let failed = match asked {
            Ok(Ok(Ok(options))) => return Ok(options),
            Ok(Ok(Err(error))) => Error::database("the callback given to `.credentials(..)` has failed", error),
            Ok(Err(panic)) => Error::database("the callback given to `.credentials(..)` panicked", panic),
            Err(late) => {
                let what = "the callback given to `.credentials(..)` has not answered within 5 seconds: cache the credentials, and \
                            refresh them before they expire";
                Error::database(what, late)
            }
        };
        Err(Failure::Lost(failed.into()))
    }

    /// Returns the failure of a login, with its remedy if what the callback returns is refused.
    pub(super) fn explained(&self, failure: Failure) -> Failure {
        let Failure::Lost(error) = failure else { return failure };
        // Class 28: invalid authorization specification.
        let is_refused = |error: &PgDatabaseError| error.code().starts_with("28");
        match self.credentials.is_some() && error.downcast_ref().is_some_and(is_refused) {
            true => {
                let what = "the server refuses the login: check what the callback given to `.credentials(..)` returns";
                Failure::Lost(Error::database(what, error).into())
            }
            false => Failure::Lost(error),
        }
    }

    /// Describes the database, without its password.
    pub(super) fn name(&self) -> String {
        let target = &self.target;
        let user = target.get_username();
        let (port, database) = (target.get_port(), target.get_database().unwrap_or(user));
        let user = match self.credentials {
            Some(_) => "user of the callback".to_owned(),
            None => format!("user {user:?}"),
        };
        match target.get_socket() {
            Some(socket) => {
                format!("PostgreSQL at {} port {port}, database {database:?}, {user}", socket.display())
            }
            None => format!("PostgreSQL at {}:{port}, database {database:?}, {user}", target.get_host()),
        }
    }
}

#[cfg(test)]
mod tests;
