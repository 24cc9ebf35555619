//! The writing side of a connection that publishes.

use std::io;
use std::time::Duration;

use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::connection::{AMQPMethod, Close};
use futures_util::AsyncWrite;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::frames;
use super::outstanding::{Unconfirmed, Waiting};

/// How many bytes are collected before they are written, unless one message has more.
pub(super) const TOGETHER: usize = 256 * 1024;

/// A message to send, or the end.
pub(super) enum Write {
    Message { frames: Vec<u8>, waiting: Waiting },
    Close,
}

/// Sends what is asked for, and heartbeats when idle. The order of writing is that of the delivery tags.
pub(super) async fn write(
    mut to: impl AsyncWrite + Unpin,
    asked: &mut mpsc::Receiver<Write>,
    heartbeat: Option<Duration>,
    unconfirmed: &Unconfirmed,
) -> io::Result<()> {
    loop {
        let received = match heartbeat {
            Some(heartbeat) => timeout(heartbeat / 2, asked.recv()).await,
            None => Ok(asked.recv().await),
        };
        let mut bytes = Vec::new();
        match received {
            Ok(Some(next)) => append(&mut bytes, next, unconfirmed)?,
            Ok(None) => return Ok(()),
            Err(_) => bytes = frames::heartbeat()?,
        }
        while bytes.len() < TOGETHER
            && let Ok(next) = asked.try_recv()
        {
            append(&mut bytes, next, unconfirmed)?;
        }
        frames::write(&mut to, &bytes).await?;
    }
}

fn append(bytes: &mut Vec<u8>, write: Write, unconfirmed: &Unconfirmed) -> io::Result<()> {
    match write {
        // A call that was dropped before its message was sent.
        Write::Message { waiting, .. } if waiting.answer.is_closed() => {}
        Write::Message { mut frames, waiting } => {
            unconfirmed.lock().push(waiting);
            bytes.append(&mut frames);
        }
        Write::Close => {
            let close = Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
            bytes.append(&mut frames::method(0, &AMQPClass::Connection(AMQPMethod::Close(close)))?);
        }
    }
    Ok(())
}
