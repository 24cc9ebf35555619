//! Who is answered, and with which headers.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;

use crate::visitor::{get, page, send};
use crate::world::{Message, World};

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn only_hosts_of_the_list_are_answered() {
    let world = World::new().await;
    let router = page(&world).hosts(["ops.example.com"]).into_router();
    for (hosts, status) in [
        (&["localhost"][..], StatusCode::OK),
        (&["LOCALHOST:4040"], StatusCode::OK),
        (&["127.0.0.1:1"], StatusCode::OK),
        (&["[::1]:4040"], StatusCode::OK),
        (&["Ops.Example.com"], StatusCode::OK),
        (&["ops.example.com:8443"], StatusCode::OK),
        (&["ops.example.com.evil.com"], StatusCode::MISDIRECTED_REQUEST),
        (&["localhost.evil.com"], StatusCode::MISDIRECTED_REQUEST),
        (&["evil.com:4040"], StatusCode::MISDIRECTED_REQUEST),
        (&["127.0.0.10"], StatusCode::MISDIRECTED_REQUEST),
        (&["127.0.0.1@evil.com"], StatusCode::MISDIRECTED_REQUEST),
        (&[], StatusCode::MISDIRECTED_REQUEST),
        (&["localhost", "evil.com"], StatusCode::MISDIRECTED_REQUEST),
        (&["local host"], StatusCode::MISDIRECTED_REQUEST),
    ] {
        let headers: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        let answer = send(&router, "GET", "/workers", &headers, "").await;
        assert_eq!(answer.status, status, "{hosts:?}: {}", answer.text);
    }
    // The address of HTTP/2, and of a proxy: it counts beside the header.
    for (address, status) in [
        ("http://localhost:4040/workers", StatusCode::OK),
        ("http://evil.com/workers", StatusCode::MISDIRECTED_REQUEST),
    ] {
        assert_eq!(send(&router, "GET", address, &[("host", "localhost")], "").await.status, status);
        assert_eq!(send(&router, "GET", address, &[], "").await.status, status);
    }
}

#[tokio::test]
async fn a_change_needs_a_form_of_this_page() {
    let world = World::new().await;
    let plain = page(&world).into_router();
    let with_origin = page(&world).origin("https://ops.example.com").into_router();
    let (refused, read) = (StatusCode::FORBIDDEN, StatusCode::BAD_REQUEST);
    for (router, site, origin, status) in [
        (&plain, &["same-origin"][..], &[][..], read),
        (&plain, &["same-site"], &[], refused),
        (&plain, &["cross-site"], &[], refused),
        (&plain, &["none"], &[], refused),
        (&plain, &["same-origin", "cross-site"], &[], refused),
        (&plain, &["same-origin, cross-site"], &[], refused),
        (&plain, &[], &[], refused),
        (&plain, &[], &["https://ops.example.com"], refused),
        (&with_origin, &[], &["https://ops.example.com"], read),
        (&with_origin, &[], &["https://ops.example.com", "https://evil.com"], refused),
        (&with_origin, &[], &["https://ops.example.com.evil.com"], refused),
        (&with_origin, &[], &["http://ops.example.com"], refused),
        (&with_origin, &[], &["null"], refused),
        (&with_origin, &[], &[], refused),
        // What the browser says of the form counts, whatever its origin.
        (&with_origin, &["cross-site"], &["https://ops.example.com"], refused),
    ] {
        let mut headers = vec![("host", "localhost"), FORM];
        headers.extend(site.iter().map(|site| ("sec-fetch-site", *site)));
        headers.extend(origin.iter().map(|origin| ("origin", *origin)));
        // A form that is read has no message selected.
        let answer = send(router, "POST", "/do/replay", &headers, "").await;
        assert_eq!(answer.status, status, "{site:?} {origin:?}: {}", answer.text);
    }
}

#[tokio::test]
async fn only_a_named_person_may_change_messages() {
    let world = World::of_a_night().await;
    let by_header = |router: idem::page::Page<idem::Sqlite>| {
        router.actions(|parts| parts.headers.get("x-user")?.to_str().ok().map(str::to_owned)).into_router()
    };
    let router = by_header(idem::page::router(&world.store));
    let read_only = idem::page::router(&world.store).into_router();
    let own = [("host", "localhost"), ("sec-fetch-site", "same-origin"), FORM];
    let anna = [own[0], own[1], own[2], ("x-user", "anna")];
    let nobody = [own[0], own[1], own[2], ("x-user", " ")];
    for (router, headers, status) in [
        (&router, &anna[..], StatusCode::OK),
        (&router, &own, StatusCode::FORBIDDEN),
        (&router, &nobody, StatusCode::FORBIDDEN),
        (&read_only, &anna, StatusCode::FORBIDDEN),
    ] {
        assert_eq!(send(router, "POST", "/do/replay", headers, "id=1").await.status, status, "{headers:?}");
        let view = send(router, "GET", "/message/1", headers, "").await;
        assert_eq!(view.text.contains("Replay…"), status == StatusCode::OK, "a form for {headers:?}");
        assert_eq!(view.text.contains("Read-only"), status != StatusCode::OK, "{headers:?}");
    }
}

#[tokio::test]
async fn only_forms_of_some_size_are_read() {
    let world = World::new().await;
    let router = page(&world).into_router();
    let own = [("host", "localhost"), ("sec-fetch-site", "same-origin")];
    let as_text = [own[0], own[1], ("content-type", "text/plain")];
    assert_eq!(send(&router, "POST", "/do/replay", &as_text, "id=1").await.status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let form = [own[0], own[1], FORM];
    let large = format!("id={}", "1".repeat(3_000_000));
    assert_eq!(send(&router, "POST", "/do/replay", &form, &large).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE"] {
        let answer = send(&router, method, "/do/replay", &form, "id=1").await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
}

#[tokio::test]
async fn every_answer_forbids_scripts_frames_and_caches() {
    let world = World::new().await;
    let router = idem::page::router(&world.store).into_router();
    for (method, path, host, status) in [
        ("GET", "/", "localhost", StatusCode::OK),
        ("HEAD", "/dead?handler=order_paid", "localhost", StatusCode::OK),
        ("GET", "/style.css", "localhost", StatusCode::OK),
        ("GET", "/nothing", "localhost", StatusCode::NOT_FOUND),
        ("GET", "/message/1", "localhost", StatusCode::NOT_FOUND),
        ("GET", "/message/x", "localhost", StatusCode::BAD_REQUEST),
        ("GET", "/dead?reason=tired", "localhost", StatusCode::BAD_REQUEST),
        ("GET", "/do/replay", "localhost", StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/do/replay", "localhost", StatusCode::FORBIDDEN),
        ("PUT", "/", "localhost", StatusCode::METHOD_NOT_ALLOWED),
        ("GET", "/", "evil.com", StatusCode::MISDIRECTED_REQUEST),
    ] {
        let answer = send(&router, method, path, &[("host", host)], "").await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        let header = |name: &str| answer.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
        let policy =
            "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
        assert_eq!(header("content-security-policy"), policy, "{method} {path}");
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(header(name), value, "{method} {path}");
        }
        let kept = if path == "/style.css" { "max-age=86400" } else { "no-store" };
        assert_eq!(header(CACHE_CONTROL.as_str()), kept, "{method} {path}");
        assert!(answer.headers.get("set-cookie").is_none());
        assert!(!answer.text.contains("<script") && !answer.text.contains(" style="), "{}", answer.text);
    }
}

#[tokio::test]
async fn all_links_stay_under_the_path_of_the_page() {
    let world = World::of_a_night().await;
    world.message(&Message::new("a b&c", Some("permanent"), "50% of \"all\" + 1")).await;
    let nested = || page(&world).into_router();
    let service = Router::new().nest_service("/ops/idem", nested());
    let plain = Router::new().nest("/ops/idem", nested());
    let stripped = page(&world).prefix("admin/").into_router();
    for (router, first, prefix, taken) in [
        (&service, "/ops/idem", "/ops/idem", ""),
        (&service, "/ops/idem/", "/ops/idem", ""),
        (&plain, "/ops/idem", "/ops/idem", ""),
        (&stripped, "/", "/admin", "/admin"),
    ] {
        let (mut seen, mut left) = (vec![first.to_owned()], vec![first.to_owned()]);
        while let Some(path) = left.pop() {
            let answer = get(router, &path).await;
            assert_eq!(answer.status, StatusCode::OK, "{path}: {}", answer.text);
            for link in answer.addresses().into_iter().filter(|link| link != "#main") {
                let inner = link.strip_prefix(prefix).unwrap_or_else(|| panic!("{link} in {path}"));
                assert!(inner.is_empty() || inner.starts_with('/'), "{link} in {path}");
                let sent = link.strip_prefix(taken).filter(|sent| !sent.is_empty()).unwrap_or("/").to_owned();
                let is_new = !seen.iter().any(|other| kind(other) == kind(&sent));
                if is_new && !link.contains("/do/") {
                    seen.push(sent.clone());
                    left.push(sent);
                }
            }
        }
        assert!(seen.len() > 10, "{seen:?}");
    }
}

/// The view of a link, and the names of its fields: each is followed once.
fn kind(link: &str) -> String {
    let (path, query) = link.split_once('?').unwrap_or((link, ""));
    let names: Vec<_> = query.split('&').filter_map(|field| field.split('=').next()).collect();
    let path = path.trim_end_matches(|character: char| character.is_ascii_digit());
    format!("{path}?{}", names.join("&"))
}
