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

/// The use of a store, which decides what its database has to be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// Workers and relays, whose acked messages must not be lost.
    Workers,
    /// As `Workers`, although a crash may lose messages.
    UnsafeWorkers,
    /// An operator, who at least reads.
    Operator,
}

/// Checks the server and the session: version, replication role, durability, row-level security. Returns its clock.
pub(super) async fn server(connection: &mut Connection, of: For, failed: &Failed<'_>) -> Result<Clock, Error> {
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
    let (fsync, full_page_writes, is_standby, has_policies, now, is_pooler, encoding): (_, _, _, bool, f64, bool, _) =
        read?;
    // Nothing is prepared in a new session.
    if !connection.is_pooled() && is_pooler {
        return Err(Error::Config(
            "a pooler is in front of the server: it has kept the settings of the login from it, or lends a session in which \
             statements are prepared. Statements that idem prepares would be missing or already there: use `.pgbouncer()`"
                .to_owned(),
        ));
    }
    let is_refused = is_standby && of != For::Operator;
    if let Some(why) = impossible(connection.ready.session.version, is_refused, encoding) {
        return Err(Error::Config(why));
    }
    // Its policies may read a setting (a tenant), which a handler of a batch must not inherit from the one before it.
    if has_policies && !connection.resets() {
        protect_tenants(connection);
    }
    clock.ahead(begun, Duration::try_from_secs_f64(now).unwrap_or_default());
    let unsafe_ones = unsafe_ones(fsync, full_page_writes, &connection.ready.session.synchronous_commit);
    unsafe_ones.into_iter().try_for_each(|why| reject_or_warn(why, of)).map(|()| clock)
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

/// Returns an error for a setting that would lose messages, or warns if the user allows it. An operator acks nothing.
pub(super) fn reject_or_warn(why: String, of: For) -> Result<(), Error> {
    match of {
        For::Workers => {
            return Err(Error::Config(format!(
                "{why}; or accept the loss of messages with `.allow_unsafe_durability()`"
            )));
        }
        For::UnsafeWorkers => tracing::warn!("acked messages may be lost in a crash: {why}"),
        For::Operator => {}
    }
    Ok(())
}

/// Returns the reason if the server cannot be used.
fn impossible(version: i32, is_standby: bool, encoding: &str) -> Option<String> {
    if version < 150_000 {
        let major = version / 10_000;
        return Some(format!("the server is PostgreSQL {major}, and idem needs 15 or newer: upgrade the server"));
    }
    if is_standby {
        return Some("the server is a standby, which takes no writes: connect to the primary".to_owned());
    }
    (encoding != "UTF8").then(|| {
        format!(
            "the encoding of the database is {encoding}, in which not every error and header can be stored: use a database that was \
             created with ENCODING 'UTF8'"
        )
    })
}

/// Returns the settings that may lose a reported commit (PostgreSQL manual, 20.5.1), each with its fix.
fn unsafe_ones(fsync: &str, full_page_writes: &str, synchronous_commit: &str) -> Vec<String> {
    let of_files =
        [("fsync", fsync), ("full_page_writes", full_page_writes)].into_iter().filter(|(_, value)| *value == "off");
    let of_files = of_files.map(|(name, _)| {
        format!("{name} is off, which loses reported commits: set {name} = on in postgresql.conf and reload")
    });
    let of_commits = (synchronous_commit == "off").then(|| {
        "synchronous_commit is off, which loses reported commits: set it to on, and look for ALTER ROLE .. SET and \
         ALTER DATABASE .. SET, which override postgresql.conf (ALTER ROLE .. RESET synchronous_commit)"
            .to_owned()
    });
    of_files.chain(of_commits).collect()
}

#[cfg(test)]
mod tests {
    use super::{impossible, unsafe_ones};

    #[test]
    fn a_sound_server_is_accepted() {
        assert_eq!(impossible(150_018, false, "UTF8"), None);
        for synchronous_commit in ["on", "local"] {
            assert!(unsafe_ones("on", "on", synchronous_commit).is_empty());
        }
    }

    #[test]
    fn each_unsafe_setting_is_named() {
        for (name, found) in [
            ("fsync", unsafe_ones("off", "on", "on")),
            ("full_page_writes", unsafe_ones("on", "off", "on")),
            ("synchronous_commit", unsafe_ones("on", "on", "off")),
        ] {
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with(name), "{found:?}");
        }
    }

    #[test]
    fn an_old_server_a_standby_and_another_encoding_cannot_be_used() {
        let old = impossible(140_019, false, "UTF8").unwrap();
        assert!(old.contains("PostgreSQL 14") && old.contains("upgrade"), "{old}");
        let standby = impossible(150_018, true, "UTF8").unwrap();
        assert!(standby.contains("primary"), "{standby}");
        let latin = impossible(150_018, false, "LATIN1").unwrap();
        assert!(latin.contains("LATIN1") && latin.contains("ENCODING 'UTF8'"), "{latin}");
    }
}
