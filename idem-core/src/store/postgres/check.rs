//! Checks of the server and its settings, so that an acked message cannot be lost.

use std::time::{Duration, Instant};

use crate::store::sql::Clock;
use crate::{BoxError, Error};

use super::answer::Failure;
use super::connection::Connection;
use super::quote::literal;
use super::session::STARTED;

/// Builds an error from a description of the failed operation and its cause.
pub(super) type Failed<'a> = dyn Fn(&str, BoxError) -> Error + Send + Sync + 'a;

/// Checks the server and the session: version, replication role, durability, row-level security. Returns its clock.
pub(super) async fn server(
    connection: &mut Connection,
    allow_unsafe: bool,
    failed: &Failed<'_>,
) -> Result<Clock, Error> {
    let (clock, begun) = (Clock::default(), Instant::now());
    let asked = format!(
        "SELECT current_setting('fsync'), current_setting('full_page_writes'), pg_catalog.pg_is_in_recovery(),
             EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE relrowsecurity AND pg_catalog.row_security_active(oid)
                 AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                     AND objid = c.oid AND deptype = 'e')),
             extract(epoch FROM now())::float8,
             current_setting('{STARTED}', true) IS DISTINCT FROM 'on'
             OR EXISTS (SELECT FROM pg_catalog.pg_prepared_statements),
             current_setting('server_encoding')"
    );
    let unclear = |failure: Failure| failed("cannot read the settings of", failure.into_error());
    let rows = connection.text(asked).await.map_err(unclear)?;
    let Some(row) = rows.first() else { return Ok(clock) };
    let read = sqlx::FromRow::from_row(row).map_err(|error| unclear(Failure::from(error)));
    let (fsync, full_page_writes, standby, has_policies, now, is_pooler, encoding): (_, _, _, bool, f64, bool, _) =
        read?;
    // Nothing is prepared in a new session.
    if !connection.is_pooled() && is_pooler {
        return Err(Error::Config(
            "a pooler is in front of the server: it has kept the settings of the login from it, or lends a session in which \
             statements are prepared. Statements that idem prepares would be missing or already there: use `.pgbouncer()`"
                .to_owned(),
        ));
    }
    let synchronous_commit = connection.session().synchronous_commit.clone();
    let version = connection.session().version;
    let settings = Settings { version, standby, fsync, full_page_writes, synchronous_commit, encoding };
    if let Some(why) = settings.impossible() {
        return Err(Error::Config(why));
    }
    // Its policies may read a setting (a tenant), which a handler of a batch must not inherit from the one before it.
    if has_policies && !connection.resets() {
        protect_tenants(connection);
    }
    clock.ahead(begun, Duration::try_from_secs_f64(now).unwrap_or_default());
    settings.unsafe_ones().into_iter().try_for_each(|why| reject_or_warn(why, allow_unsafe)).map(|()| clock)
}

/// Resets the settings between the messages of a batch. Behind a pooler that would also remove what the pooler has set, which
/// may be the tenant itself.
fn protect_tenants(connection: &Connection) {
    if connection.is_pooled() {
        tracing::warn!(
            "row-level security applies to this role: a handler of a batch sees the settings that another one has made with SET \
             LOCAL, unless the store has `.reset_between_messages()`, which also undoes what the pooler has set (connect_query)"
        );
        return;
    }
    connection.reset_between_messages();
    tracing::info!("row-level security applies to this role: batches reset all settings between two messages");
}

/// Checks that unqualified names of this session do not resolve to idem's schema by accident. The default search path
/// begins with `"$user"`, so a schema with the role's name hides the application's tables in `public` as soon as it
/// exists.
pub(super) async fn path(connection: &mut Connection, schema: &str, failed: &Failed<'_>) -> Result<(), Error> {
    // Without bound values: a pooler could send Parse and Execute to different sessions.
    let asked = format!(
        "SELECT 1 WHERE current_user = {schema} AND (current_schemas(false))[1] = {schema}
             AND current_setting('search_path') LIKE '%$user%'",
        schema = literal(schema)
    );
    let unclear = |failure: Failure| failed("cannot read the search path of", failure.into_error());
    if connection.text(asked).await.map_err(unclear)?.is_empty() {
        return Ok(());
    }
    let name = super::quote::quoted(schema);
    Err(Error::Config(format!(
        "the schema {schema:?} has the name of the role, whose search path begins with \"$user\": tables that the \
         application creates without a schema name would be created beside idem's tables, and would hide its tables \
         in other schemas. Choose another schema, `.schema(..)`, or set the search path: ALTER ROLE {name} SET search_path = public (or {name}, public, if \
         the application's tables are there)"
    )))
}

/// Returns an error for a setting that would lose messages, or warns if the user allows it.
pub(super) fn reject_or_warn(why: String, allow_unsafe: bool) -> Result<(), Error> {
    if allow_unsafe {
        tracing::warn!("acked messages may be lost in a crash: {why}");
        return Ok(());
    }
    Err(Error::Config(format!("{why}; or accept the loss of messages with `.allow_unsafe_durability()`")))
}

/// The server's settings.
struct Settings {
    version: i32,
    standby: bool,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    encoding: String,
}

impl Settings {
    /// Returns the reason if the server cannot be used.
    fn impossible(&self) -> Option<String> {
        if self.version < 150_000 {
            let major = self.version / 10_000;
            return Some(format!("the server is PostgreSQL {major}, and idem needs 15 or newer: upgrade the server"));
        }
        if self.standby {
            return Some("the server is a standby, which takes no writes: connect to the primary".to_owned());
        }
        (self.encoding != "UTF8").then(|| {
            format!(
                "the encoding of the database is {}, in which not every error and header can be stored: use a database that was \
                 created with ENCODING 'UTF8'",
                self.encoding
            )
        })
    }

    /// Returns the settings that may lose a reported commit (PostgreSQL manual, 20.5.1), each with its fix.
    fn unsafe_ones(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value == "off" {
                found.push(format!(
                    "{name} is off, which loses reported commits: set {name} = on in postgresql.conf and reload"
                ));
            }
        }
        if self.synchronous_commit == "off" {
            found.push(
                "synchronous_commit is off, which loses reported commits: set it to on, and look for ALTER ROLE .. SET and \
                 ALTER DATABASE .. SET, which override postgresql.conf (ALTER ROLE .. RESET synchronous_commit)"
                    .to_owned(),
            );
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Settings;

    fn sound() -> Settings {
        let on = || "on".to_owned();
        let (fsync, full_page_writes, synchronous_commit) = (on(), on(), on());
        let encoding = "UTF8".to_owned();
        Settings { version: 150_018, standby: false, fsync, full_page_writes, synchronous_commit, encoding }
    }

    #[test]
    fn a_sound_server_is_accepted() {
        assert!(sound().impossible().is_none());
        assert!(sound().unsafe_ones().is_empty());
        assert!(Settings { synchronous_commit: "local".into(), ..sound() }.unsafe_ones().is_empty());
    }

    #[test]
    fn each_unsafe_setting_is_named() {
        let off = || "off".to_owned();
        let unsafe_ones = [
            ("fsync", Settings { fsync: off(), ..sound() }),
            ("full_page_writes", Settings { full_page_writes: off(), ..sound() }),
            ("synchronous_commit", Settings { synchronous_commit: off(), ..sound() }),
        ];
        for (name, settings) in unsafe_ones {
            let found = settings.unsafe_ones();
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with(name), "{found:?}");
        }
    }

    #[test]
    fn an_old_server_a_standby_and_another_encoding_cannot_be_used() {
        let old = Settings { version: 140_019, ..sound() }.impossible().unwrap();
        assert!(old.contains("PostgreSQL 14") && old.contains("upgrade"), "{old}");
        let standby = Settings { standby: true, ..sound() }.impossible().unwrap();
        assert!(standby.contains("primary"), "{standby}");
        let latin = Settings { encoding: "LATIN1".to_owned(), ..sound() }.impossible().unwrap();
        assert!(latin.contains("LATIN1") && latin.contains("ENCODING 'UTF8'"), "{latin}");
    }
}
