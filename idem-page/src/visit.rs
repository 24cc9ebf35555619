//! A request to a view: its fields, the operator that answers it, and the page or the error that it gets.

use std::fmt::Display;
use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, RawForm, Request};
use axum::http::{Method, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use idem_core::operator::{Filter, Operator};
use idem_core::{Error, Reason, Store};
use maud::{Markup, html};

use crate::guard::{At, admit};
use crate::text::short;
use crate::{Page, layout};

/// The fields of which a filter is made.
pub(crate) const FILTER: [&str; 9] =
    ["consumer", "handler", "reason", "error", "payload", "key", "since", "until", "id"];

/// A request that the guard has let through.
pub(crate) struct Visit<S> {
    pub(crate) page: Arc<Page<S>>,
    pub(crate) at: At,
    pub(crate) fields: Fields,
}

/// The title of a view, and what it shows below.
pub(crate) type View = (String, Markup);

impl<S: Store> FromRequest<Arc<Page<S>>> for Visit<S> {
    type Rejection = Response;

    async fn from_request(request: Request, page: &Arc<Page<S>>) -> Result<Self, Response> {
        let (parts, body) = request.into_parts();
        let at = admit(page, &parts).map_err(IntoResponse::into_response)?;
        let encoded = if parts.method == Method::POST {
            let form = RawForm::from_request(Request::from_parts(parts, body), page).await;
            form.map_err(IntoResponse::into_response)?.0
        } else {
            Bytes::copy_from_slice(parts.uri.query().unwrap_or_default().as_bytes())
        };
        let mut fields = Fields::parse(&encoded);
        if let Some(consumer) = &page.consumer {
            // A question names the consumer whose messages it is about.
            fields = fields.with("consumer", consumer);
        }
        Ok(Self { page: Arc::clone(page), at, fields })
    }
}

impl<S: Store> Visit<S> {
    /// The operator for the consumer of the page or of the request, in the name of the person. Its changes are one command.
    pub(crate) fn operator(&self) -> Operator<S> {
        let operator = Operator::new(&self.page.store).by(self.at.actor.as_deref().unwrap_or_default());
        match self.page.consumer.as_deref().or_else(|| self.fields.get("consumer")) {
            Some(consumer) => operator.consumer(consumer),
            None => operator,
        }
    }

    /// The filter that the fields describe, and the operator for its consumer.
    pub(crate) async fn filter(&self) -> Result<(Operator<S>, Filter), Failure> {
        let (fields, mut operator, mut filter) = (&self.fields, self.operator(), Filter::new());
        let text = |name: &str| fields.get(name).map(str::to_owned);
        (filter.key, filter.error, filter.payload) = (text("key"), text("error"), text("payload"));
        (filter.since, filter.until) = (fields.read("since")?, fields.read("until")?);
        filter.ids = fields.read("id")?.into_iter().collect();
        if filter.payload.is_some() && !self.page.payloads {
            // The number of hits would tell what is hidden.
            let why = "payloads are hidden, so they are not searched either";
            return Err(Failure(StatusCode::FORBIDDEN, why.to_owned()));
        }
        if let Some(word) = fields.get("reason") {
            let reason = Reason::parse(word);
            filter.reason = Some(reason.ok_or_else(|| Failure::asked(format!("there is no reason {word:?}")))?);
        }
        if let Some(name) = fields.get("handler") {
            let known = operator.handler(name).await?;
            filter.handler = Some(known.name);
            operator = operator.consumer(known.consumer);
        }
        Ok((operator, filter))
    }

    /// Answers with what `view` makes, or with an error page.
    pub(crate) async fn show(&self, view: impl Future<Output = Result<View, Failure>>) -> Response {
        let (status, (title, body)) = match view.await {
            Ok(view) => (StatusCode::OK, view),
            Err(Failure(status, text)) => {
                let title = status.canonical_reason().unwrap_or("Error").to_owned();
                (status, (title, html! { p.verdict.bad { (short(&text, 4000)) } }))
            }
        };
        (status, Html(layout::document(&self.at, &self.fields, &title, &body).into_string())).into_response()
    }
}

/// Why there is no view: the status of the answer, and its text.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) StatusCode, pub(crate) String);

impl Failure {
    /// The request has to be another one.
    pub(crate) fn asked(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error {
            Error::Config(_) => StatusCode::BAD_REQUEST,
            Error::Denied { .. } => StatusCode::FORBIDDEN,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

/// The fields of a query or a form. One without a value counts as one that is not there: a form sends all of its own.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    fn parse(encoded: &[u8]) -> Self {
        let fields = form_urlencoded::parse(encoded).into_owned();
        Self(fields.filter(|(_, value)| !value.trim().is_empty()).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(other, _)| *other == name).map(|(_, value)| value.trim())
    }

    /// Reads the field. The failure says which one could not be read, and why.
    pub(crate) fn read<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, Failure> {
        let unread = |why: T::Err| Failure::asked(format!("the field `{name}` cannot be read: {why}"));
        self.get(name).map(|text| text.parse::<T>().map_err(unread)).transpose()
    }

    /// These fields with another value of `name`; without it if the value is empty.
    pub(crate) fn with(mut self, name: &str, value: impl Display) -> Self {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.to_owned(), value.to_string()));
        self.0.retain(|(_, value)| !value.is_empty());
        self
    }

    /// The fields of which the filter is made.
    pub(crate) fn filter(&self) -> Self {
        Self(self.0.iter().filter(|(name, _)| FILTER.contains(&name.as_str())).cloned().collect())
    }

    /// The fields for a form.
    pub(crate) fn hidden(&self) -> Markup {
        html! { @for (name, value) in self.iter() { input type="hidden" name=(name) value=(value); } }
    }

    /// The address of this path with these fields as its query.
    pub(crate) fn link(&self, path: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(self.iter()).finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_changed_and_written() {
        let fields = Fields::parse(b"id=1&handler=a%2Fb+c&key=&limit=x");
        assert_eq!((fields.get("handler"), fields.get("key")), (Some("a/b c"), None));
        assert_eq!(fields.read::<i64>("id").unwrap(), Some(1));
        assert!(fields.read::<i64>("limit").is_err_and(|Failure(_, why)| why.contains("`limit`")));
        let changed = fields.filter().with("limit", "7&8").with("id", 2);
        assert_eq!(changed.link("/dead"), "/dead?handler=a%2Fb+c&limit=7%268&id=2");
        assert_eq!(Fields::default().link("/dead"), "/dead");
    }
}
