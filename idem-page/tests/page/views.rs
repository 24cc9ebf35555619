//! What the views show, and what they must not.

use axum::http::StatusCode;

use crate::visitor::{get, page};
use crate::world::{Message, World};

/// A text with all that misleads a reader, a browser or a terminal.
const NASTY: &str = "<script>alert(1)</script>\"'&\u{202e}\u{1b}[2J\u{7}\u{200b}";

async fn nasty() -> World {
    let world = World::of_a_night().await;
    let long = NASTY.repeat(90);
    let error: String = long.chars().take(4000).collect();
    let headers: Vec<(String, String)> = (0..60).map(|nth| (format!("{NASTY}{nth}"), long.clone())).collect();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let payload = format!("{{\"{NASTY}\": \"{}\"}}", "\"<".repeat(40_000).replace('"', "\\\""));
    for nth in 0..60 {
        let key: String = format!("{nth}{long}").chars().take(120).collect();
        let message = Message::new(&key, Some("exhausted"), &error);
        world.message(&Message { headers: &headers, payload: payload.as_bytes(), ..message }).await;
    }
    let name = NASTY.replace('\'', "''");
    world.sql(&format!("UPDATE idem_handlers SET name = name || '{name}' WHERE id = 1")).await;
    world.sql(&format!("UPDATE idem_outboxes SET name = name || '{name}' WHERE name = 'mail'")).await;
    world.sql(&format!("UPDATE idem_outbox_dead SET error = '{name}', destination = '{name}'")).await;
    world.sql(&format!("UPDATE idem_workers SET host = '{name}', version = '{name}'")).await;
    world
        .sql(&format!(
            "INSERT INTO idem_operations (command, action, actor, handler_id, row_id, key, reason, attempts, error) \
             SELECT randomblob(16), 'replayed', '{name}', handler_id, id, (SELECT key FROM idem_inbox_messages ORDER BY id DESC \
             LIMIT 1), reason, attempts, error FROM idem_inbox_messages WHERE error <> '' ORDER BY id DESC LIMIT 60"
        ))
        .await;
    // The message of all these changes.
    let newest = "(SELECT max(id) FROM idem_inbox_messages)";
    world.sql(&format!("UPDATE idem_inbox_messages SET answer = payload WHERE id = {newest}")).await;
    world
}

#[tokio::test]
async fn views_of_the_worst_rows_are_small_and_harmless() {
    let world = nasty().await;
    let router = page(&world).payloads().into_router();
    let style = get(&router, "/style.css").await.text.len();
    assert!(style <= 9 * 1024, "the stylesheet has {style} bytes");
    let newest = world.texts("SELECT max(id) FROM idem_inbox_messages").await.remove(0);
    let command = world.texts("SELECT lower(hex(command)) FROM idem_operations").await.remove(0);
    let nasty: String = form_urlencoded::byte_serialize(NASTY.as_bytes()).collect();
    for path in [
        "/".to_owned(),
        "/dead".to_owned(),
        "/dead?reason=exhausted&since=2h".to_owned(),
        format!("/dead?error={nasty}&payload={nasty}&key={nasty}"),
        format!("/message/{newest}"),
        format!("/why?handler=charge&key={nasty}"),
        "/outbox".to_owned(),
        format!("/outbox?name=mail{nasty}"),
        "/calls".to_owned(),
        "/workers".to_owned(),
        "/operations".to_owned(),
        format!("/operations?command={command}"),
    ] {
        let answer = get(&router, &path).await;
        assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
        let size = answer.text.len() + style;
        assert!(size < 60_000, "{path} has {size} bytes");
        is_harmless(&path, &answer.text);
    }
    for path in [format!("/dead?handler={nasty}"), format!("/{nasty}"), format!("/outbox?name={nasty}")] {
        let answer = get(&router, &path).await;
        assert!(answer.status.is_client_error(), "{path}: {}", answer.status);
        is_harmless(&path, &answer.text);
    }
}

fn is_harmless(path: &str, text: &str) {
    assert!(!text.contains("<script") && !text.contains(" style="), "{path}: {text}");
    let bad = text.chars().find(|&character| character != '\n' && !idem::operator::is_harmless(character));
    assert_eq!(bad, None, "{path}");
}

#[tokio::test]
async fn payloads_are_hidden_unless_they_are_shown_and_secrets_always() {
    let world = World::new().await;
    let payload = br#"{"order_id": 7, "card_token": "s3cret"}"#;
    let id = world.message(&Message { payload, ..Message::new("a", Some("exhausted"), "no table") }).await;
    let hidden = idem::page::router(&world.store).into_router();
    let view = get(&hidden, &format!("/message/{id}")).await.text;
    assert!(!view.contains("order_id") && !view.contains("acme") && view.contains("tenant"), "{view}");
    // The number of hits would tell what is hidden.
    let search = get(&hidden, "/dead?payload=order_id").await;
    assert_eq!(search.status, StatusCode::FORBIDDEN);
    assert!(!get(&hidden, "/dead").await.text.contains("name=\"payload\""));

    let shown = idem::page::router(&world.store).payloads().into_router();
    let view = get(&shown, &format!("/message/{id}")).await.text;
    assert!(view.contains("order_id") && view.contains("acme") && !view.contains("s3cret"), "{view}");
    assert!(get(&shown, "/dead?payload=order_id").await.text.contains(&format!("/message/{id}\"")));
}

#[tokio::test]
async fn a_payload_of_ten_megabytes_is_shown_by_its_beginning() {
    let world = World::new().await;
    let payload = format!("{{\"order_id\": 7, \"lines\": \"{}\"}}", "x".repeat(10_000_000));
    let message = Message::new("a", Some("exhausted"), "no table");
    let id = world.message(&Message { payload: payload.as_bytes(), ..message }).await;
    let router = page(&world).payloads().into_router();
    let view = get(&router, &format!("/message/{id}")).await.text;
    assert!(
        view.contains("10,000,028 bytes") && view.contains("idem dead show") && view.len() < 50_000,
        "{}",
        view.len()
    );
}

#[tokio::test]
async fn the_overview_says_what_needs_a_person() {
    let world = World::new().await;
    let router = page(&world).into_router();
    let quiet = get(&router, "/").await.text;
    assert!(quiet.contains("Nothing needs a person") && quiet.contains("<title>Overview"), "{quiet}");
    world.message(&Message::new("a", Some("exhausted"), "relation \"orders\" does not exist")).await;
    let loud = get(&router, "/").await.text;
    assert!(loud.contains("Needs a person") && loud.contains("relation &quot;orders&quot;"), "{loud}");
}

#[tokio::test]
async fn a_cause_leads_to_its_messages() {
    let world = World::of_a_night().await;
    let router = page(&world).into_router();
    let overview = get(&router, "/").await;
    let causes: Vec<_> = overview.addresses().into_iter().filter(|link| link.contains("error=")).collect();
    assert!(causes.len() >= 2, "{causes:?}");
    for (cause, count) in causes.iter().zip(["300", "111"]) {
        let view = get(&router, cause).await;
        assert!(view.text.contains(&format!(">{count}<")), "{cause}: {}", view.text);
    }
    let late = get(&router, "/dead?since=50m").await;
    let causes: Vec<_> = late.addresses().into_iter().filter(|link| link.contains("error=")).collect();
    assert!(causes.len() >= 2 && causes.iter().all(|cause| cause.contains("since=50m")), "{causes:?}");
}

#[tokio::test]
async fn the_search_box_says_why() {
    let world = World::of_a_night().await;
    let router = page(&world).into_router();
    for (asked, said) in [
        ("handler=order_paid&key=e-7", "a duplicate"),
        ("handler=billing/order_paid&key=order-3", "a dead letter"),
        ("handler=shop/ship&key=parcel-3", "the message is scheduled"),
        ("handler=order_paid&key=new", "it would run"),
    ] {
        let answer = get(&router, &format!("/why?{asked}")).await;
        assert_eq!(answer.status, StatusCode::OK, "{asked}");
        assert!(answer.text.contains(said), "{asked}: {}", answer.text);
        // A guess of a hidden payload could be compared with it.
        assert!(!answer.text.contains("ingerprint"), "{asked}: {}", answer.text);
    }
    let claim = get(&router, "/why?handler=order_paid&key=e-7").await.text;
    assert!(claim.contains("Z</dd>"), "a time says that it is in UTC: {claim}");
    let unknown = get(&router, "/why?handler=order_payed&key=7").await;
    assert_eq!(unknown.status, StatusCode::BAD_REQUEST);
    assert!(unknown.text.contains("order_paid"), "the nearest name: {}", unknown.text);
    assert_eq!(get(&router, "/why").await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_message_leads_to_its_own_answer() {
    let world = World::new().await;
    let id = world.message(&Message::new("a", Some("exhausted"), "no table")).await;
    world.sql(&format!("UPDATE idem_handlers SET name = '{}' WHERE id = 1", "settle_".repeat(20))).await;
    // Another consumer has a handler with the same name.
    world.sql("UPDATE idem_handlers SET name = (SELECT name FROM idem_handlers WHERE id = 1) WHERE id = 3").await;
    let router = page(&world).into_router();
    let links = get(&router, &format!("/message/{id}")).await.addresses();
    let why = get(&router, links.iter().find(|link| link.starts_with("/why?")).unwrap()).await;
    assert_eq!(why.status, StatusCode::OK, "{}", why.text);
    assert!(why.text.contains("a dead letter"), "{}", why.text);
}

#[tokio::test]
async fn a_key_with_many_conflicts_has_a_small_answer() {
    let world = World::new().await;
    for _ in 0..60 {
        world.message(&Message::new("order-7", Some("conflict"), "another message has this key")).await;
    }
    let answer = get(&page(&world).into_router(), "/why?handler=order_paid&key=order-7").await;
    assert_eq!(answer.text.matches("/message/").count(), 20, "{}", answer.text);
}

#[tokio::test]
async fn an_unresolved_call_leads_to_the_calls() {
    let world = World::of_a_night().await;
    let links = get(&page(&world).into_router(), "/").await.addresses();
    assert!(links.contains(&"/calls?consumer=billing".to_owned()), "{links:?}");
}

#[tokio::test]
async fn lists_have_pages() {
    let world = World::of_a_night().await;
    let router = page(&world).into_router();
    let (mut seen, mut path) = (Vec::new(), "/dead?handler=order_paid".to_owned());
    loop {
        let links = get(&router, &path).await.addresses();
        seen.extend(links.iter().filter(|link| link.contains("/message/")).cloned());
        let Some(older) = links.into_iter().find(|link| link.contains("before=")) else { break };
        path = older;
    }
    let all = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((all, seen.len()), (411, 411));
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_said() {
    let world = World::new().await;
    world.sql("DROP TABLE idem_operations").await;
    let router = page(&world).into_router();
    let answer = get(&router, "/operations").await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.text.contains("idem_operations"), "{}", answer.text);
}
