//! The questions of operators: how a store answers one.

use std::time::Duration;

use idem_core::store::{Consumers, Question, StoreError, Value};

use super::stage::Stage;
use super::world::World;

/// With values of each type, and those that are missing.
pub async fn a_question_is_answered_in_the_order_of_its_statement<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let question = Question::new(
        "values of a test",
        "SELECT json_build_object('n', v.n + $1, 'text', $2::text, 'bytes', encode($3::bytea, 'hex'), 'none', $4::text)
         FROM (SELECT 2 AS n UNION ALL SELECT 1) AS v ORDER BY v.n",
        "SELECT json_object('n', v.n + ?1, 'text', ?2, 'bytes', lower(hex(?3)), 'none', ?4)
         FROM (SELECT 2 AS n UNION ALL SELECT 1) AS v ORDER BY v.n",
    );
    let values = [Value::from(6), Value::from("o'7 \" \\ <b>"), Value::from(vec![0xff, 0]), Value::Text(None)];
    let answer = stage.store.ask(&question, &values).await.unwrap();
    let answer: Vec<String> = answer.iter().map(|json| json.replace([' ', '\n'], "")).collect();
    let expected = [7, 8].map(|n| format!(r#"{{"n":{n},"text":"o'7\"\\<b>","bytes":"ff00","none":null}}"#));
    assert_eq!(answer, expected);
}

/// An operator's role may be one that changes things; a question is not.
pub async fn a_question_changes_nothing_unless_it_says_so<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let rename = Question::new(
        "rename of a test",
        "UPDATE {schema}.handlers SET name = $1 RETURNING name",
        r#"UPDATE "idem_handlers" SET name = ?1 RETURNING name"#,
    );
    let values = [Value::from("renamed")];
    let refused = stage.store.ask(&rename, &values).await.unwrap_err();
    assert!(matches!(refused, StoreError::Denied(_)), "{refused:?}");
    let name = async || stage.store.handlers(Some("billing")).await.unwrap().remove(0).name;
    assert_eq!(name().await, "order_paid");
    assert_eq!(stage.store.ask(&rename.writes(), &values).await.unwrap(), ["renamed"]);
    assert_eq!(name().await, "renamed");
}

/// It is ended where it runs, and the next one is answered.
pub async fn a_question_ends_with_its_patience<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let long = Question::new("long", W::FEATURES.long, W::FEATURES.long).patience(Duration::from_millis(100));
    let ended = crate::soon(stage.store.ask(&long, &[])).await.unwrap_err();
    assert!(matches!(ended, StoreError::ConnectionLost(_)), "{ended:?}");
    let short = Question::new("short", "SELECT 'a'", "SELECT 'a'");
    // Longer than other statements of the store may take.
    let short = short.patience(Duration::from_secs(60));
    assert_eq!(crate::soon(stage.store.ask(&short, &[])).await.unwrap(), ["a"]);
}

/// Also where a handler is the only writer.
pub async fn a_question_waits_for_no_handler<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "a").await;
    let dead = Question::new(
        "dead of a test",
        "SELECT count(*)::text FROM {schema}.inbox_messages AS i WHERE NOT ({ordinary}) AND {due} <= {now}",
        r#"SELECT CAST(count(*) AS TEXT) FROM "idem_inbox_messages" AS i WHERE NOT ({ordinary}) AND {due} <= {now}"#,
    );
    assert_eq!(crate::soon(stage.store.ask(&dead, &[])).await.unwrap(), ["0"]);
    super::stage::committed(stage.commit(txn).await);
}
