//! The streams behind a subject.

use std::time::Duration;

use async_nats::jetstream::context::GetStreamByNameErrorKind;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::address::Address;
use crate::connection::Connection;

/// How long to wait for the server's answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The answer to the question which stream has a subject.
pub(crate) enum Found {
    /// The stream of this name.
    Stream(String),
    /// None.
    Nothing,
    /// The login may not ask.
    Forbidden,
    /// There is no answer at present, for this reason.
    Unknown(String),
}

/// Asks which stream has this subject. It may have wildcards.
pub(crate) async fn find(connection: &Connection, subject: &str) -> Found {
    let denied = connection.denied.watch(&format!("{}.STREAM.NAMES", connection.api));
    let jetstream = connection.jetstream();
    tokio::select! {
        biased;
        answer = timeout(TIMEOUT, jetstream.stream_by_subject(subject)) => match answer {
            Ok(Ok(name)) => Found::Stream(name),
            Ok(Err(error)) if matches!(error.kind(), GetStreamByNameErrorKind::NotFound) => Found::Nothing,
            Ok(Err(error)) => Found::Unknown(error.to_string()),
            Err(_) => Found::Unknown(format!("no answer within {} seconds", TIMEOUT.as_secs())),
        },
        // The server does not answer.
        () = denied => Found::Forbidden,
    }
}

/// Warns of streams with these subjects whose confirm is worth nothing, or that send none. A login that may not ask is
/// not warned.
pub(crate) async fn warn(connection: &Connection, subjects: &str, address: &Address) {
    let denied = connection.denied.watch(&format!("{}.STREAM.LIST", connection.api));
    let jetstream = connection.jetstream();
    let request = json!({ "subject": subjects });
    let answer = tokio::select! {
        biased;
        answer = timeout(TIMEOUT, jetstream.request("STREAM.LIST", &request)) => answer,
        () = denied => return,
    };
    let Ok(Ok(answer)) = answer else { return };
    let answer: Value = answer;
    for stream in answer.get("streams").and_then(Value::as_array).into_iter().flatten() {
        let config = &stream["config"];
        let name = config["name"].as_str().unwrap_or_default();
        if config["retention"] == "interest" {
            tracing::warn!(
                stream = name,
                %address,
                "the stream has the retention `interest`: it confirms a message that no consumer's filter matches, and \
                 does not store it, so the outbox loses it. Create the consumers first, or use the retention `limits`"
            );
        }
        if config["no_ack"] == true {
            tracing::warn!(
                stream = name,
                %address,
                "the stream has `no_ack`, so it confirms no message, and each is published again and again: edit it"
            );
        }
    }
}
