//! The ledger of migrations: which versions of idem may use a database.

use crate::Error;

use super::Migration;

/// An applied migration.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) version: i64,
    pub(crate) name: String,
    /// The lowest migration that a version of idem must know to use the tables after this migration.
    pub(crate) supports: i64,
}

/// Returns an error if this version of idem, which knows these migrations, must not use the tables: a newer one has changed
/// them so that it can no longer.
fn check(place: &str, known: &[Migration], applied: &[Applied]) -> Result<(), Error> {
    let latest = known.iter().map(|migration| migration.version).max().unwrap_or(0);
    let newer = applied.iter().filter(|applied| applied.version > latest).max_by_key(|applied| applied.version);
    let Some(newest) = newer else { return Ok(()) };
    let Applied { version, name, .. } = newest;
    let Some(needed) = applied.iter().map(|applied| applied.supports).max().filter(|needed| *needed > latest) else {
        tracing::info!(place, version, latest, "a newer version of idem has migrated, and supports this one");
        return Ok(());
    };
    Err(Error::Config(format!(
        "{place} was migrated by a newer version of idem, to {version:04} ({name}), which needs an idem that knows \
         migration {needed:04}; this one knows migrations up to {latest:04}: start the newer version, since no migration \
         is taken back"
    )))
}

/// Returns the migrations that have not been applied. Unknown ones come from a newer version, which has to support this one.
pub(crate) fn missing(place: &str, known: &[Migration], applied: &[Applied]) -> Result<Vec<Migration>, Error> {
    check(place, known, applied)?;
    let is_there = |migration: &&Migration| applied.iter().any(|applied| applied.version == migration.version);
    Ok(known.iter().filter(|migration| !is_there(migration)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::{Applied, Migration, check};

    const KNOWN: [Migration; 2] = [
        Migration { version: 1, name: "0001_step_1.sql", sql: "" },
        Migration { version: 2, name: "0002_step_2.sql", sql: "" },
    ];

    fn applied(versions: &[(i64, i64)]) -> Vec<Applied> {
        let row = |(version, supports): &(i64, i64)| Applied {
            version: *version,
            name: format!("step_{version}"),
            supports: *supports,
        };
        versions.iter().map(row).collect()
    }

    #[test]
    fn newer_migrations_are_refused_unless_all_support_this_version() {
        for accepted in [&[][..], &[(1, 1)], &[(1, 1), (2, 1)], &[(1, 1), (2, 2)], &[(1, 1), (2, 2), (3, 2), (4, 1)]] {
            check("it", &KNOWN, &applied(accepted)).unwrap();
        }
        for refused in [&[(1, 1), (2, 2), (3, 3)][..], &[(1, 1), (2, 1), (3, 3), (4, 1)]] {
            let why = check("the schema", &KNOWN, &applied(refused)).unwrap_err().to_string();
            assert!(why.contains("the schema") && why.contains("0003") && why.contains("0002"), "{why}");
        }
    }
}
