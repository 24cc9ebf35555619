//! Changes: each is asked for once, done for exactly what was meant, and recorded.

use axum::http::StatusCode;

use crate::visitor::{get, page, post, post_surely};
use crate::world::{Message, World};

const RECORDED: &str = "SELECT actor || ' ' || action || ' ' || coalesce(row_id, '') FROM idem_operations ORDER BY id";
const DEAD: &str = "SELECT id FROM idem_inbox_messages WHERE state = 'dead' ORDER BY id";

fn dead<'a>(key: &'a str, error: &'a str) -> Message<'a> {
    Message::new(key, Some("exhausted"), error)
}

#[tokio::test]
async fn a_change_is_asked_for_once_and_recorded() {
    let world = World::new().await;
    for (key, error) in [("a", "no table"), ("b", "timeout"), ("c", "no table")] {
        world.message(&dead(key, error)).await;
    }
    let router = page(&world).into_router();
    let question = post(&router, "/do/replay", &[("error", "no table")]).await;
    assert!(question.text.contains("Replay 2 messages?"), "{}", question.text);
    assert_eq!(world.texts(DEAD).await, ["1", "2", "3"], "a question changes nothing");

    let done = post_surely(&router, "/do/replay", &[("error", "no table")]).await;
    assert!(done.text.contains("2 messages changed"), "{}", done.text);
    assert_eq!(world.texts(DEAD).await, ["2"]);
    let mut recorded = world.texts(RECORDED).await;
    recorded.sort();
    assert_eq!(recorded, ["anna replayed 1", "anna replayed 3"]);
    let links = done.addresses();
    let command = links.iter().find(|link| link.starts_with("/operations?command=")).unwrap();
    assert_eq!(get(&router, command).await.text.matches("replayed").count(), 2);

    let again = post(&router, "/do/replay", &[("id", "1")]).await;
    assert!(again.text.contains("nothing to do"), "{}", again.text);
}

#[tokio::test]
async fn a_form_without_a_filter_changes_nothing() {
    let world = World::new().await;
    world.message(&dead("a", "no table")).await;
    let router = page(&world).into_router();
    for fields in [&[][..], &[("sure", "1")], &[("all", "1"), ("sure", "1")], &[("id", ""), ("sure", "1")]] {
        for path in ["/do/replay", "/do/discard", "/do/force"] {
            let answer = post(&router, path, fields).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path} {fields:?}");
        }
    }
    assert_eq!(post(&router, "/do/everything", &[("id", "1")]).await.status, StatusCode::NOT_FOUND);
    assert_eq!(world.texts(DEAD).await, ["1"]);
}

#[tokio::test]
async fn all_that_match_are_changed_and_no_others() {
    let world = World::new().await;
    for (key, error) in [("a", "no table"), ("b", "timeout"), ("c", "no table")] {
        world.message(&dead(key, error)).await;
    }
    world.message(&dead("d", "no table").of(3)).await;
    let router = page(&world).into_router();
    let fields = [("handler", "billing/order_paid"), ("error", "no table")];
    post_surely(&router, "/do/replay", &fields).await;
    assert_eq!(world.texts(DEAD).await, ["2", "4"]);
    let done = post_surely(&router, "/do/discard", &[("consumer", "shop")]).await;
    assert!(done.text.contains("1 message changed"), "{}", done.text);
    assert_eq!(world.texts(DEAD).await, ["2"]);
}

#[tokio::test]
async fn a_message_that_dies_after_the_question_is_not_replayed() {
    let world = World::new().await;
    world.message(&dead("a", "no table")).await;
    let router = page(&world).into_router();
    let question = post(&router, "/do/replay", &[("handler", "order_paid")]).await;
    let later = world.message(&dead("b", "no table")).await;
    // It died in the future, so that no clock is too coarse to tell.
    world.sql(&format!("UPDATE idem_inbox_messages SET died_at = died_at + 3600000 WHERE id = {later}")).await;
    let fields = question.hidden();
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(post(&router, "/do/replay", &fields).await.status, StatusCode::OK);
    assert_eq!(world.texts(DEAD).await, [later.to_string()]);
}

#[tokio::test]
async fn a_question_about_old_messages_is_answered_for_them_alone() {
    let world = World::new().await;
    for minutes in [180_u64, 90, 3] {
        world.message(&dead(&minutes.to_string(), "no table").aged(minutes)).await;
    }
    let router = page(&world).into_router();
    for (action, until, left) in [("/do/discard", "2h", &["2", "3"][..]), ("/do/replay", "1h", &["3"])] {
        let question = post(&router, action, &[("until", until)]).await;
        assert!(question.text.contains("1 message?"), "{}", question.text);
        let done = post_surely(&router, action, &[("until", until)]).await;
        assert!(done.text.contains("1 message changed"), "{}", done.text);
        assert_eq!(world.texts(DEAD).await, left, "{action}");
    }
}

#[tokio::test]
async fn what_is_left_is_said_with_its_cure() {
    let world = World::new().await;
    for reason in ["exhausted", "too old", "conflict", "unresolved"] {
        world.message(&Message::new(reason, Some(reason), "")).await;
    }
    let router = page(&world).into_router();
    let done = post_surely(&router, "/do/replay", &[("handler", "order_paid")]).await;
    for text in ["1 message changed", "by force", "another key", "resolve each"] {
        assert!(done.text.contains(text), "{text} in {}", done.text);
    }
    assert_eq!(world.texts(DEAD).await, ["2", "3", "4"]);
    let question = post(&router, "/do/replay", &[("reason", "conflict")]).await;
    assert!(question.text.contains("nothing to do") && !question.text.contains("Replay 0"), "{}", question.text);
    let forced = post_surely(&router, "/do/force", &[("id", "2")]).await;
    assert!(forced.text.contains("1 message changed"), "{}", forced.text);
    assert_eq!(world.texts(RECORDED).await[1], "anna replayed by force 2");
}

#[tokio::test]
async fn a_message_names_the_command_for_what_takes_more_than_a_click() {
    let world = World::new().await;
    for (reason, command) in [("conflict", "idem dead replay 1 --as KEY"), ("unresolved", "idem calls resolve 2")] {
        let id = world.message(&Message::new(reason, Some(reason), "")).await;
        let view = get(&page(&world).into_router(), &format!("/message/{id}")).await.text;
        assert!(view.contains(command), "{command} in {view}");
    }
}

#[tokio::test]
async fn a_page_of_one_consumer_neither_shows_nor_changes_others() {
    let world = World::new().await;
    world.message(&dead("a", "no table")).await;
    world.message(&dead("b", "no table").of(3)).await;
    let router = page(&world).consumer("shop").into_router();
    assert_eq!(get(&router, "/message/1").await.status, StatusCode::NOT_FOUND);
    assert_eq!(get(&router, "/message/2").await.status, StatusCode::OK);
    let list = get(&router, "/dead?consumer=billing").await;
    assert!(!list.text.contains("/message/1\"") && list.text.contains("/message/2\""), "{}", list.text);
    // A name that is not set is no consumer, and not all of them.
    let unset = page(&world).consumer("").into_router();
    assert!(!get(&unset, "/dead").await.text.contains("/message/"));
    let question = post(&router, "/do/discard", &[("consumer", "billing")]).await;
    assert!(question.text.contains("consumer: <code>shop<") && !question.text.contains("billing"), "{}", question.text);
    post_surely(&router, "/do/discard", &[("consumer", "billing")]).await;
    let other = post(&router, "/do/discard", &[("id", "1")]).await;
    assert!(other.text.contains("nothing to do"), "{}", other.text);
    assert_eq!(world.texts(DEAD).await, ["1"]);
}
