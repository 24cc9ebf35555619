//! The rows of names that an application has used.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// What one kind of names is in the database, so that each is read once. It changes with a restore of the database alone, which
/// the statement that uses a row has to notice. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Names<N, R>(Arc<Mutex<HashMap<N, R>>>);

impl<N, R> Default for Names<N, R> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<N: Hash + Eq + Clone, R: Copy> Names<N, R> {
    /// Returns the row of this name, from `read` if it is not known yet.
    pub(crate) async fn get<E>(&self, name: &N, read: impl Future<Output = Result<R, E>>) -> Result<R, E> {
        let known = self.0.lock().get(name).copied();
        if let Some(row) = known {
            return Ok(row);
        }
        let row = read.await?;
        self.0.lock().insert(name.clone(), row);
        Ok(row)
    }

    /// Forgets the row of this name, which the database does not have.
    pub(crate) fn forget(&self, name: &N) {
        self.0.lock().remove(name);
    }
}
