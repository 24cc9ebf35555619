//! A client of the page without a browser.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, Request, StatusCode};
use idem::Sqlite;
use idem::page::Page;
use tower::ServiceExt;

use crate::world::World;

/// The page on which Anna may change messages.
pub(crate) fn page(world: &World) -> Page<Sqlite> {
    idem::page::router(&world.store).actions(|_| Some("anna".to_owned()))
}

/// What the page has answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// Sends a request with exactly these headers.
pub(crate) async fn send(router: &Router, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = router.clone().oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let (parts, body) = answer.into_parts();
    let text = String::from_utf8(to_bytes(body, 10_000_000).await.unwrap().to_vec()).unwrap();
    Answer { status: parts.status, headers: parts.headers, text }
}

/// Loads a view as a browser does.
pub(crate) async fn get(router: &Router, path: &str) -> Answer {
    send(router, "GET", path, &[(HOST.as_str(), "localhost:4040")], "").await
}

/// Sends a form of the page as a browser does.
pub(crate) async fn post(router: &Router, path: &str, fields: &[(&str, &str)]) -> Answer {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let headers = [
        (HOST.as_str(), "localhost:4040"),
        ("sec-fetch-site", "same-origin"),
        (CONTENT_TYPE.as_str(), "application/x-www-form-urlencoded"),
    ];
    send(router, "POST", path, &headers, &body).await
}

/// Sends a form, and answers the question with yes.
pub(crate) async fn post_surely(router: &Router, path: &str, fields: &[(&str, &str)]) -> Answer {
    let question = post(router, path, fields).await;
    assert_eq!(question.status, StatusCode::OK, "{}", question.text);
    let fields = question.hidden();
    assert!(fields.iter().any(|(name, _)| name == "sure"), "no question: {}", question.text);
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    post(router, path, &fields).await
}

impl Answer {
    /// The hidden fields of its forms.
    pub(crate) fn hidden(&self) -> Vec<(String, String)> {
        let inputs = self.text.split("<input type=\"hidden\" name=\"").skip(1);
        let field = |input: &str| {
            let (name, rest) = input.split_once("\" value=\"")?;
            Some((name.to_owned(), unescape(rest.split_once('"')?.0)))
        };
        inputs.filter_map(field).collect()
    }

    /// The addresses in links, forms and the head.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let after = |name: &'static str| self.text.split(name).skip(1).filter_map(|rest| rest.split_once('"'));
        [" href=\"", " action=\"", " formaction=\""]
            .into_iter()
            .flat_map(after)
            .map(|(link, _)| unescape(link))
            .collect()
    }
}

fn unescape(text: &str) -> String {
    text.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
}
