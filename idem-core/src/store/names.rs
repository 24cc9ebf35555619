//! The numbers of names that an application has used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Numbers of names in the database, which never change, so that each is read once. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<(String, String), i32>>>);

impl Names {
    /// Returns the number of this name, from `read` if it is not known yet.
    pub(crate) async fn get<E>(
        &self,
        (group, name): (&str, &str),
        read: impl Future<Output = Result<i32, E>>,
    ) -> Result<i32, E> {
        let known = |names: &Self| {
            let names = names.0.lock().unwrap_or_else(PoisonError::into_inner);
            names.get(&(group.to_owned(), name.to_owned())).copied()
        };
        if let Some(number) = known(self) {
            return Ok(number);
        }
        let number = read.await?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert((group.to_owned(), name.to_owned()), number);
        Ok(number)
    }
}
