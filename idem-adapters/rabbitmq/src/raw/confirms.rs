//! The reading side of a connection that publishes.

use std::io;
use std::time::Duration;

use amq_protocol::protocol::basic::parse_properties;
use futures_util::AsyncRead;
use tokio::time::timeout;

use super::cursor::Cursor;
use super::frames::{self, HEADER, METHOD, unexpected};
use super::outstanding::{End, Unconfirmed};

/// A message that the server returns, without its properties: they follow.
struct Returned {
    reason: String,
    routing_key: Vec<u8>,
}

/// Reads until the connection ends, and answers what the server confirms.
pub(super) async fn read(
    mut from: impl AsyncRead + Unpin,
    silence: Option<Duration>,
    unconfirmed: &Unconfirmed,
) -> End {
    let mut returned = None;
    loop {
        let (kind, content) = match frame(&mut from, silence).await {
            Ok(frame) => frame,
            Err(error) => return End::Lost(error.to_string()),
        };
        match kind {
            METHOD => match method(Cursor(&content), unconfirmed, &mut returned) {
                Some(None) => {}
                Some(Some(end)) => return end,
                None => return End::Lost(unexpected().to_string()),
            },
            HEADER => {
                let Some(Returned { reason, routing_key }) = returned.take() else { continue };
                // The properties are those that this process has sent.
                let Ok((_, properties)) = parse_properties(content.get(12..).unwrap_or_default()) else { continue };
                let id = properties.message_id().as_ref().map(|id| id.as_str()).unwrap_or_default();
                unconfirmed.lock().returned(id, &routing_key, &reason);
            }
            // A heartbeat, or the payload of a returned message.
            _ => {}
        }
    }
}

async fn frame(from: &mut (impl AsyncRead + Unpin), silence: Option<Duration>) -> io::Result<(u8, Vec<u8>)> {
    match silence {
        Some(silence) => timeout(silence, frames::read(from)).await.unwrap_or_else(|_| {
            let text = format!("the server was silent for {} seconds", silence.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }),
        None => frames::read(from).await,
    }
}

/// Handles a method, and returns the end of the connection if it is one. `None` if it cannot be parsed.
fn method(mut method: Cursor<'_>, unconfirmed: &Unconfirmed, returned: &mut Option<Returned>) -> Option<Option<End>> {
    match (method.u16()?, method.u16()?) {
        (60, ack @ (80 | 120)) => {
            let (tag, multiple) = (method.u64()?, method.u8()? & 1 != 0);
            unconfirmed.lock().confirm(tag, multiple, ack == 80);
        }
        (60, 50) => {
            let reason = method.reason()?;
            let _exchange = method.short()?;
            *returned = Some(Returned { reason, routing_key: method.short()?.to_vec() });
        }
        (20, 40) => {
            let (code, text, unconfirmed) = (method.u16()?, method.text()?, unconfirmed.lock().count());
            return Some(Some(End::Refused { code, text, unconfirmed }));
        }
        (10, 50) => return Some(Some(End::Lost(method.reason()?))),
        (10, 51) => return Some(Some(End::Lost("the connection was closed".to_owned()))),
        (10, 60) => {
            let reason = method.text()?;
            tracing::warn!(reason, "RabbitMQ has blocked the connection: it takes no messages until it is freed");
        }
        (10, 61) => tracing::info!("RabbitMQ has freed the connection"),
        _ => {}
    }
    Some(None)
}
