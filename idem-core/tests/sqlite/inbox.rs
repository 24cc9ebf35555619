//! Inbox rows of several handlers.

use idem_core::store::{Consumers, FetchFor, FetchLimit, InboxRows, RowKind};
use uuid::Uuid;

use crate::world::{LONG, World};

#[tokio::test]
async fn rows_of_other_handlers_are_not_fetched_and_the_earliest_of_all_handlers_comes_first() {
    let world = World::new().await;
    let ids = world.store.register("billing", &["x", "y", "z"]).await.unwrap();
    world
        .sql(&format!(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 89)
             INSERT INTO idem_inbox_messages (created_at, run_at, handler_id, state, key, fingerprint, envelope, payload)
             SELECT 0, 1000 - i, CASE i % 3 WHEN 0 THEN {} WHEN 1 THEN {} ELSE {} END, 'scheduled',
                    CAST('k' || i AS BLOB), x'', x'', x'' FROM n",
            ids[0].0, ids[1].0, ids[2].0
        ))
        .await;
    let handlers = [ids[0], ids[2]].map(|id| FetchFor::new(id, LONG));
    let four = FetchLimit::rows(RowKind::Ordinary, 4);
    let rows = world.store.fetch(&handlers, four, Uuid::new_v4()).await.unwrap().rows;
    let mut keys = rows.iter().map(|row| row.identity.key.to_string()).collect::<Vec<_>>();
    keys.sort();
    assert_eq!(keys, ["k84", "k86", "k87", "k89"]);
}
