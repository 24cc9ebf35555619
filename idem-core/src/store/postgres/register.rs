//! The names of handlers, each of which is a small integer.

use std::collections::HashMap;

use sqlx::Row as _;

use crate::store::{Claims as _, HandlerId, NUMBERS, StoreError, number, tell_of_retention};

use super::quote::literal;
use super::rows::{ids, secs};
use super::{Postgres, register_sql};

impl Postgres {
    /// Returns the numbers of these names, which are made here if there are none.
    pub(super) async fn intern(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, StoreError> {
        let retention = secs(self.0.retention);
        for attempt in 0..NUMBERS {
            let numbers: Vec<i32> = names.iter().map(|name| number(&[consumer, name], attempt)).collect();
            let intern = self.query(register_sql::INTERN).bind(consumer).bind(names).bind(retention).bind(numbers);
            self.ask(intern).await?;
            // In a separate statement, which sees the rows that another worker has inserted meanwhile.
            let known = self.known(consumer, names).await?;
            let found = names.iter().map(|name| known.get(*name).copied());
            if let Some(found) = found.collect::<Option<Vec<_>>>() {
                self.ask(self.query(register_sql::KEEP).bind(ids(&found)).bind(retention)).await?;
                let stored = self.retention(&found).await?.into_iter().max().flatten();
                tell_of_retention(consumer, self.0.retention, stored, |millis| {
                    let (schema, consumer) = (&self.0.quoted, literal(consumer));
                    format!(
                        "UPDATE {schema}.handlers SET retention = '{millis} milliseconds' WHERE consumer = {consumer}"
                    )
                });
                return Ok(found);
            }
        }
        Err(StoreError::Unavailable("a handler was deleted while it was registered".into()))
    }

    /// Returns the numbers of those names that have one.
    async fn known(&self, consumer: &str, names: &[&str]) -> Result<HashMap<String, HandlerId>, StoreError> {
        let mut known = HashMap::new();
        for row in self.ask(self.query(register_sql::HANDLERS).bind(consumer).bind(names)).await? {
            known.entry(row.try_get(0)?).or_insert(HandlerId(row.try_get(1)?));
        }
        Ok(known)
    }

    /// Each statement leaves the names as they were or as they should be, so it may be repeated after any of them.
    pub(super) async fn join_names(&self, consumer: &str, old: &str, new: &str) -> Result<bool, StoreError> {
        let known = self.known(consumer, &[old, new]).await?;
        let (id, is_old) = match (known.get(old), known.get(new)) {
            (Some(before), Some(after)) if before == after => return Ok(true),
            (Some(before), Some(after)) if self.forget(*after).await? => (*before, true),
            (Some(before), Some(after)) if self.forget(*before).await? => (*after, false),
            (Some(_), Some(_)) => return Ok(false),
            (Some(before), None) => (*before, true),
            (None, Some(after)) => (*after, false),
            (None, None) => match self.intern(consumer, &[new]).await?.first() {
                Some(id) => (*id, false),
                None => return Ok(true),
            },
        };
        let (statement, name) = if is_old { (register_sql::RENAME, new) } else { (register_sql::ADD_FORMER_NAME, old) };
        self.ask(self.query(statement).bind(id.0).bind(name)).await.map(|_| true)
    }

    /// Deletes a handler to which nothing belongs. Returns whether it has done so.
    async fn forget(&self, id: HandlerId) -> Result<bool, StoreError> {
        Ok(!self.ask(self.query(register_sql::FORGET).bind(id.0)).await?.is_empty())
    }
}
