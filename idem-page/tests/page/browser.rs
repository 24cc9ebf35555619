//! The page in Chromium without a window.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use axum::Router;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use idem_services::Browser;

use crate::screen::Screen;
use crate::visitor::page;
use crate::world::{Message, World};

/// Serves a router on a port of its own. Returns its address.
async fn serve(router: Router) -> String {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// The page under a path, on which Anna may change messages.
async fn served(world: &World) -> String {
    let address = serve(Router::new().nest_service("/ops/idem", page(world).payloads().into_router())).await;
    format!("{address}/ops/idem")
}

/// Where pictures are kept, if they are asked for: `cargo xtask screenshots`.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("IDEM_SCREENSHOTS").map(PathBuf::from)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_view_can_be_read_narrow_and_wide_in_light_and_dark() {
    let world = World::of_a_night().await;
    // Somebody has replayed a message before.
    let id = world.message(&Message::new("e-8", Some("exhausted"), "timeout").aged(500)).await;
    let operator = idem::operator::Operator::new(&world.store).by("anna");
    operator.replay(id).await.unwrap();
    let unresolved = world.texts("SELECT max(id) FROM idem_inbox_messages WHERE reason = 'unresolved'").await.remove(0);
    let browser = Browser::start().unwrap();
    let base = served(&world).await;
    for width in [1400, 400] {
        let screen = Screen::open(&browser, &base, width).await;
        for scheme in ["light", "dark"] {
            screen.scheme(scheme).await;
            for (name, path) in [
                ("overview", "".to_owned()),
                ("dead", "/dead?handler=order_paid".to_owned()),
                ("message", format!("/message/{unresolved}")),
                ("why", "/why?handler=order_paid&key=e-7".to_owned()),
                ("outboxes", "/outbox".to_owned()),
                ("outbox", "/outbox?name=mail".to_owned()),
                ("calls", "/calls".to_owned()),
                ("workers", "/workers".to_owned()),
                ("operations", "/operations".to_owned()),
                ("error", "/why?handler=order_payed&key=7".to_owned()),
            ] {
                screen.goto(&path).await;
                let said = screen.console().await;
                // Chromium reports the status of the page of an error.
                assert!(said.is_empty() || name == "error", "the console of {name} at {width} in {scheme}: {said:?}");
                assert_eq!(screen.faults().await, "", "{name} at {width} in {scheme}");
                if let Some(folder) = pictures() {
                    let picture = BASE64_STANDARD.decode(screen.picture().await).unwrap();
                    std::fs::write(folder.join(format!("{name}-{width}-{scheme}.png")), picture).unwrap();
                }
            }
        }
        screen.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keyboard_alone_asks_why_and_replays() {
    let world = World::new().await;
    let id = world.message(&Message::new("e-7", Some("exhausted"), "no table")).await;
    let browser = Browser::start().unwrap();
    let screen = Screen::open(&browser, &served(&world).await, 1400).await;
    screen.goto("").await;
    screen.tab_to("input[name=handler]").await;
    screen.press("order_paid".chars()).await;
    screen.tab_to("input[name=key]").await;
    screen.press("e-7".chars()).await;
    screen.enter().await;
    assert_eq!(screen.path().await, "/why?handler=order_paid&key=e-7");
    assert!(screen.text().await.contains("a dead letter"), "{}", screen.text().await);

    screen.tab_to(&format!("a[href$='/message/{id}']")).await;
    screen.enter().await;
    screen.tab_to("button[formaction$='/do/replay']").await;
    screen.enter().await;
    assert!(screen.text().await.contains("Replay 1 message?"), "{}", screen.text().await);
    // The button has the focus.
    assert_eq!(screen.run("return document.activeElement.textContent").await, "Replay 1 message");
    screen.enter().await;
    assert!(screen.path().await.starts_with("/do/replay"), "{}", screen.path().await);
    assert!(screen.text().await.contains("1 message changed"), "{}", screen.text().await);
    assert!(world.texts("SELECT id FROM idem_inbox_messages WHERE state = 'dead'").await.is_empty());
    assert_eq!(world.texts("SELECT actor || ' ' || action FROM idem_operations").await, ["anna replayed"]);
    assert!(screen.console().await.is_empty());
    screen.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cause_is_replayed_on_a_phone() {
    let world = World::new().await;
    for (key, error) in [("a", "no table"), ("b", "timeout"), ("c", "no table")] {
        world.message(&Message::new(key, Some("exhausted"), error)).await;
    }
    let browser = Browser::start().unwrap();
    let screen = Screen::open(&browser, &served(&world).await, 400).await;
    screen.goto("").await;
    screen.tab_to("a[href*='no+table']").await;
    screen.enter().await;
    screen.tab_to("button[formaction$='/do/replay']").await;
    screen.enter().await;
    assert!(screen.text().await.contains("Replay 2 messages?"), "{}", screen.text().await);
    screen.enter().await;
    assert_eq!(world.texts("SELECT id FROM idem_inbox_messages WHERE state = 'dead'").await, ["2"]);
    screen.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_of_another_site_changes_nothing() {
    let world = World::new().await;
    world.message(&Message::new("a", Some("exhausted"), "no table")).await;
    let base = served(&world).await;
    let form = format!(
        "<!DOCTYPE html><title>evil</title><form method=post action='{base}/do/discard'><input type=hidden name=id value=1>\
         <input type=hidden name=sure value=1><button>Win</button></form>"
    );
    let page = axum::response::Html(form);
    let evil = serve(Router::new().route("/", axum::routing::get(move || async move { page }))).await;
    let browser = Browser::start().unwrap();
    // The same host at another port is another origin of the same site; `localhost` is another site.
    for other in [evil.clone(), evil.replace("127.0.0.1", "localhost")] {
        let screen = Screen::open(&browser, &other, 1400).await;
        screen.goto("/").await;
        screen.tab_to("button").await;
        screen.enter().await;
        assert!(screen.text().await.contains("the form has to be on this page"), "{}", screen.text().await);
        screen.close().await;
    }
    assert_eq!(world.texts("SELECT id FROM idem_inbox_messages WHERE state = 'dead'").await, ["1"]);
}
