//! The database that the command line names, and what a command works with.

use std::path::Path;

use idem_core::operator::Operator;
use idem_core::store::postgres::PostgresOptions;
use idem_core::store::sqlite::SqliteOptions;
use idem_core::{Error, Postgres, Sqlite, Store};
use serde::Serialize;

use crate::args::Globals;
use crate::output::{Exit, Failure, Output};

/// What each command works with.
pub(crate) struct Session<S> {
    pub(crate) operator: Operator<S>,
    pub(crate) out: Output,
}

impl<S: Store> Session<S> {
    /// Prints rows, or says that there is none.
    pub(crate) fn rows(&self, members: &[&str], rows: &[impl Serialize], none: &str) -> Exit {
        self.out.answer(&rows, |rows| self.out.table(members, rows))?;
        if rows.is_empty() { Err(Failure::none(none)) } else { Ok(0) }
    }
}

/// A database, not yet connected.
pub(crate) enum Target {
    Postgres(PostgresOptions),
    Sqlite(SqliteOptions),
}

impl Target {
    /// The database of these arguments; `creates` if a SQLite file may be created.
    pub(crate) fn new(globals: &Globals, creates: bool) -> Result<Self, Failure> {
        let Some(url) = globals.database.as_deref().filter(|url| !url.is_empty()) else {
            return Err(Failure::usage("no database is named: set DATABASE_URL, or say --database"));
        };
        let known = "say postgres://.., sqlite:.., or the path of a SQLite file";
        let path = match (url.strip_prefix("sqlite:"), url.split_once("://")) {
            (Some(rest), _) => rest.strip_prefix("//").unwrap_or(rest).split('?').next().unwrap_or_default(),
            (None, Some(("postgres" | "postgresql", _))) => {
                return Ok(Self::Postgres(Postgres::options(url).schema(&globals.schema).connections(2)));
            }
            // The rest may contain a password.
            (None, Some((scheme, _))) => {
                return Err(Failure::usage(format!("no database has a URL that begins with {scheme}://: {known}")));
            }
            // So may the words of libpq (`host=db password=..`), and a URL without its scheme.
            (None, None) if url.contains(['=', '@']) && !Path::new(url).exists() => {
                return Err(Failure::usage(format!("no database is named in a known way: {known}")));
            }
            (None, None) => url,
        };
        // The text of a URL may be escaped. Such a file is not created either.
        if !creates && !path.contains('%') && !Path::new(path).exists() {
            return Err(Failure::database(format!("there is no file {path}; nothing was created")));
        }
        Ok(Self::Sqlite(Sqlite::options(url)))
    }

    /// The error of a worker that starts here, if there is one.
    pub(crate) async fn start_error(self) -> Option<Error> {
        match self {
            Self::Postgres(options) => options.verify_only().connect().await.err(),
            Self::Sqlite(options) => options.verify_only().connect().await.err(),
        }
    }
}

/// A database that cannot be used. If its tables are missing, a command makes them.
pub(crate) fn unusable(error: Error) -> Failure {
    let remedy = match error {
        Error::Denied { .. } => return Failure::denied(error.to_string()),
        Error::Config(_) => concat!(
            "\nthis is idem ",
            env!("CARGO_PKG_VERSION"),
            ". Is this the right database, and the right --schema? If it is, and tables are missing, run idem migrate as a role that may \
             create them, or the SQL of idem migrate --print"
        ),
        _ => "",
    };
    Failure::database(format!("{error}{remedy}"))
}
