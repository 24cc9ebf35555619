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

/// How many messages are written at once, at most.
const TOGETHER: usize = 256;

/// A message to send, or the end.
pub(super) enum Write {
    Message { frames: Vec<u8>, waiting: Waiting },
    Close,
}

/// Sends what is asked for, and heartbeats when idle. The order of writing is that of the delivery tags.
pub(super) async fn write(
    mut to: impl AsyncWrite + Unpin,
    asked: &mut mpsc::UnboundedReceiver<Write>,
    heartbeat: Option<Duration>,
    unconfirmed: &Unconfirmed,
) -> io::Result<()> {
    let (mut together, mut bytes) = (Vec::new(), Vec::new());
    loop {
        let received = asked.recv_many(&mut together, TOGETHER);
        let received = match heartbeat {
            Some(heartbeat) => timeout(heartbeat / 2, received).await,
            None => Ok(received.await),
        };
        bytes.clear();
        match received {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(_) => bytes = frames::heartbeat()?,
        }
        for write in together.drain(..) {
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
        }
        frames::write(&mut to, &bytes).await?;
    }
}
