//! The SQL that creates a store's tables.

/// One migration of a store: the SQL that `connect` runs, for those who run it themselves, because the role of their
/// workers may not create tables. See [`Postgres::migrations`](crate::Postgres::migrations) and
/// [`Sqlite::migrations`](crate::Sqlite::migrations).
///
/// ```
/// # use idem_core::store::Migration;
/// /// Writes each migration as a file, for the tool that the database's owner runs.
/// fn write(migrations: &[Migration], folder: &std::path::Path) -> std::io::Result<()> {
///     migrations.iter().try_for_each(|migration| std::fs::write(folder.join(migration.name), migration.sql))
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migration {
    /// Its number. Migrations are run in this order, and each is recorded in the table `migrations`.
    pub version: i64,
    /// Its name as a file, for example `0001_tables.sql`.
    pub name: &'static str,
    /// Its SQL: several statements, to run in one transaction. The comment at its head says how.
    pub sql: &'static str,
}
