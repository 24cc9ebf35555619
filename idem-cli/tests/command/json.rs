//! Each command answers with one JSON document, whose members scripts rely on.

use crate::shop::night;
use crate::world::{OnPostgres, OnSqlite};

const ROW: &str =
    "attempts crash_count created_at deliveries died_at error handler id key locked_until reason run_at state";
const OPERATION: &str = "action actor at attempts command consumer error handler id key outbox reason role row";
const DONE: &str = "before discarded due gone is_cut looked needs_force needs_key unresolved";

/// Commands, their exit codes, a place in their documents, and members that are there.
const ANSWERS: &[(&[&str], i32, &str, &str)] = &[
    (&["status"], 10, "", "consumers outboxes"),
    (
        &["status"],
        10,
        "/consumers/0",
        "alive blocked blocked_for calling consumer dead hour last_seen minute oldest_due paused scheduled series unresolved",
    ),
    (&["status", "--exact"], 10, "/consumers/0/dead", "at_least rows"),
    (&["status"], 10, "/consumers/0/minute", "duplicates failed processed"),
    (&["status"], 10, "/outboxes/0", "dead name oldest relay_seen waiting"),
    (&["why", "shop/ship", "8"], 11, "", "claim compared consumer handler hints key operations rows verdict"),
    (&["why", "shop/ship", "8"], 11, "/claim", "fingerprint kept_until processed_at"),
    (&["dead", "list"], 0, "", "looked next rows unsearched"),
    (&["dead", "list"], 0, "/rows/0", ROW),
    (&["dead", "group"], 0, "/groups/0", "consumer count error_filter example first handler last line reason"),
    (&["dead", "show", "DEAD"], 0, "", "consumer headers may operations payload payload_bytes row"),
    (&["dead", "replay", "--all", "--dry-run"], 5, "", DONE),
    (&["dead", "replay", "--handler", "order_paid", "--limit", "1"], 0, "", DONE),
    (&["dead", "discard", "--handler", "order_paid", "--yes"], 0, "", DONE),
    (&["scheduled"], 0, "/rows/0", ROW),
    (&["outbox", "list"], 0, "/0", "dead name oldest relay_seen waiting"),
    (&["outbox", "list", "office", "--waiting"], 0, "/0", "attempts created_at died_at error id key to"),
    (&["forget", "shop/ship", "8", "--yes"], 0, "/done", "processed_at"),
    (&["operations"], 0, "/0", OPERATION),
    (&["prune"], 0, "", "claims"),
    (&["migrate"], 0, "", "migrations"),
    (&["doctor"], 10, "/0", "remedy what"),
    (&["roles", "--print"], 0, "", "sql"),
    (&["migrate", "--print"], 0, "", "sql"),
];

/// The commands whose documents are lists that may be empty.
const LISTS: &[&[&str]] = &[&["calls"], &["workers"]];

macro_rules! json {
    ($module:ident, $world:ty) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $module() {
            let Some(mut world) = <$world>::new().await else { return };
            night!(world, $module);
            let dead = "SELECT max(id) FROM {inbox_messages} WHERE reason = 'exhausted'";
            let dead = world.number(dead).await.to_string();
            for (args, exit, place, members) in ANSWERS {
                let args: Vec<_> =
                    args.iter().map(|arg| if *arg == "DEAD" { &*dead } else { *arg }).chain(["--json"]).collect();
                let answer = world.idem(&args).await;
                assert_eq!(answer.exit, *exit, "{args:?}: {answer:?}");
                let document = answer.json();
                for member in members.split(' ') {
                    let is_there = document.pointer(place).is_some_and(|part| part.get(member).is_some());
                    assert!(is_there, "{args:?} has no {place}/{member}: {document}");
                }
            }
            for args in LISTS {
                let answer = world.idem(&[*args, &["--json"][..]].concat()).await;
                assert!(answer.exit <= 1 && answer.json().is_array(), "{args:?}: {answer:?}");
            }
            world.end().await;
        }
    };
}
json!(postgres, OnPostgres);
json!(sqlite, OnSqlite);
