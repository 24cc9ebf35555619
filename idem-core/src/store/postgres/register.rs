//! Handlers: (consumer, name) as a small integer.

use std::collections::HashMap;

use sqlx::Row as _;

use crate::store::{Fault, HandlerId};

use super::Postgres;

/// `NOT EXISTS` keeps the sequence from running on with every start of every worker, which ON CONFLICT alone would do.
pub(super) const INTERN: &str = "
    INSERT INTO {schema}.handlers (consumer, name)
    SELECT DISTINCT $1, name FROM unnest($2::text[]) AS name
    WHERE NOT EXISTS (SELECT FROM {schema}.handlers AS h WHERE h.consumer = $1 AND h.name = name.name)
    ON CONFLICT (consumer, name) DO NOTHING";

pub(super) const HANDLERS: &str = "
    SELECT name, id FROM {schema}.handlers WHERE consumer = $1 AND name = ANY($2)";

pub(super) const WAITING: &str = "
    SELECT name FROM {schema}.handlers AS h
    WHERE consumer = $1 AND EXISTS (SELECT FROM {schema}.inbox_messages AS i WHERE i.handler_id = h.id)
    ORDER BY name";

impl Postgres {
    pub(super) async fn intern(&self, consumer: &str, names: &[&str]) -> Result<Vec<HandlerId>, Fault> {
        let names = names.iter().map(ToString::to_string).collect::<Vec<_>>();
        self.ask(self.sql().intern.query().bind(consumer).bind(&names)).await?;
        // In a statement of its own, which sees what another worker has inserted meanwhile.
        let rows = self.ask(self.sql().handlers.query().bind(consumer).bind(&names)).await?;
        let mut ids = HashMap::new();
        for row in rows {
            ids.insert(row.try_get::<String, _>(0)?, HandlerId(row.try_get(1)?));
        }
        let found = names.iter().map(|name| ids.get(name).copied());
        found
            .collect::<Option<_>>()
            .ok_or_else(|| Fault::Outage("a handler was deleted while it was registered".into()))
    }

    pub(super) async fn names_waiting(&self, consumer: &str) -> Result<Vec<String>, Fault> {
        let rows = self.ask(self.sql().waiting.query().bind(consumer)).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }
}
