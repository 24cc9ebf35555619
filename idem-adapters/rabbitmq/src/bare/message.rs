//! The messages and events that the server sends to a consumer.

use std::io;
use std::time::Duration;

use futures_util::AsyncRead;
use tokio::time::timeout;

use super::cursor::Cursor;
use super::frames::{self, BODY, HEADER, HEARTBEAT, METHOD, unexpected};
use crate::error::CANCELLED;

/// One delivery, as bytes.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) tag: u64,
    pub(crate) redelivered: bool,
    pub(crate) exchange: Vec<u8>,
    pub(crate) routing_key: Vec<u8>,
    /// The property list: its flags, and the properties that are present.
    pub(crate) properties: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

/// An event that the server sends to a consumer.
pub(super) enum Said {
    Message(Message),
    /// The consumer is cancelled, as requested: no more messages follow.
    Cancelled,
    /// The connection is closed, as requested.
    Closed,
}

/// The server's side of a connection with one consumer.
pub(super) struct Listener<R> {
    pub(super) from: R,
    /// The maximum silence of the server: twice its heartbeat interval.
    pub(super) silence: Option<Duration>,
}

impl<R: AsyncRead + Unpin> Listener<R> {
    /// Returns the next event. Not cancel safe.
    pub(super) async fn said(&mut self) -> io::Result<Said> {
        loop {
            let content = self.frame(METHOD).await?;
            let mut method = Cursor(&content);
            match (method.u16(), method.u16()) {
                (Some(60), Some(60)) => return self.message(method).await.map(Said::Message),
                (Some(60), Some(31)) => return Ok(Said::Cancelled),
                (Some(10), Some(51)) => return Ok(Said::Closed),
                (Some(60), Some(30)) => return Err(io::Error::other(CANCELLED)),
                // The server closes the channel or the connection, with a reason.
                (Some(20), Some(40)) | (Some(10), Some(50)) => return Err(reason(method)),
                (Some(_), Some(_)) => {}
                _ => return Err(unexpected()),
            }
        }
    }

    async fn message(&mut self, mut method: Cursor<'_>) -> io::Result<Message> {
        let mut message = deliver(&mut method).ok_or_else(unexpected)?;
        let content = self.frame(HEADER).await?;
        let mut header = Cursor(&content);
        // Class and weight.
        let size = header.take(4).and_then(|_| header.u64()).ok_or_else(unexpected)?;
        message.properties = header.0.to_vec();
        while (message.body.len() as u64) < size {
            message.body.append(&mut self.frame(BODY).await?);
        }
        Ok(message)
    }

    async fn frame(&mut self, kind: u8) -> io::Result<Vec<u8>> {
        loop {
            let frame = match self.silence {
                Some(silence) => {
                    timeout(silence, frames::read(&mut self.from)).await.map_err(|_| silent(silence))??
                }
                None => frames::read(&mut self.from).await?,
            };
            match frame {
                (HEARTBEAT, _) => {}
                (of, content) if of == kind => return Ok(content),
                _ => return Err(unexpected()),
            }
        }
    }
}

fn deliver(method: &mut Cursor<'_>) -> Option<Message> {
    let _consumer = method.short()?;
    let (tag, redelivered) = (method.u64()?, method.u8()? != 0);
    let (exchange, routing_key) = (method.short()?.to_vec(), method.short()?.to_vec());
    Some(Message { tag, redelivered, exchange, routing_key, ..Default::default() })
}

fn reason(mut method: Cursor<'_>) -> io::Error {
    let code = method.u16().unwrap_or_default();
    let text = String::from_utf8_lossy(method.short().unwrap_or_default());
    io::Error::other(format!("{code} {text}"))
}

fn silent(silence: Duration) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("the server was silent for {} seconds", silence.as_secs()))
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, TryStreamExt};

    use super::*;

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 0, 1], &(content.len() as u32).to_be_bytes()[..], content, &[0xCE]].concat()
    }

    async fn said(frames: &[Vec<u8>]) -> io::Result<Said> {
        let from = frames.concat();
        Listener { from: from.as_slice(), silence: None }.said().await
    }

    /// Consumer `c`, tag 7, redelivered, default exchange, a routing key that is not UTF-8.
    const DELIVER: &[u8] = &[0, 60, 0, 60, 1, b'c', 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 1, 0xFF];

    #[tokio::test]
    async fn a_message_is_read_from_as_many_frames_as_it_has() {
        let header = [&[0, 60, 0, 0], &4_u64.to_be_bytes()[..], &[0, 0x80, 1, 0xFE]].concat();
        let heartbeat = frame(HEARTBEAT, b"");
        let frames = [
            heartbeat.clone(),
            frame(METHOD, DELIVER),
            frame(HEADER, &header),
            frame(BODY, b"abc"),
            heartbeat,
            frame(BODY, b"d"),
        ];
        let Said::Message(message) = said(&frames).await.unwrap() else { panic!("no message") };
        assert_eq!((message.tag, message.redelivered), (7, true));
        assert_eq!((message.exchange, message.routing_key), (vec![], vec![0xFF]));
        assert_eq!((message.properties, message.body), (vec![0, 0x80, 1, 0xFE], b"abcd".to_vec()));
    }

    #[tokio::test]
    async fn the_reason_for_the_end_of_the_consumer_is_reported() {
        for (method, expected) in [
            (&[0, 60, 0, 30, 1, b'c', 1][..], "cancelled"),
            (&[0, 20, 0, 40, 1, 0x96, 3, b'w', b'h', b'y', 0, 0, 0, 0], "406 why"),
            (&[0, 10, 0, 50, 1, 0x40, 3, b'w', b'h', 0xFF, 0, 0, 0, 0], "320 wh\u{fffd}"),
            (&[0, 60, 0, 60, 200], "AMQP 0-9-1"),
            (&[0], "AMQP 0-9-1"),
        ] {
            let error = said(&[frame(METHOD, method)]).await.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(matches!(said(&[frame(METHOD, &[0, 60, 0, 31, 1, b'c'])]).await, Ok(Said::Cancelled)));
        assert!(matches!(said(&[frame(METHOD, &[0, 10, 0, 51])]).await, Ok(Said::Closed)));
        assert!(said(&[]).await.is_err(), "the end of the stream");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_silent_for_two_heartbeats_is_given_up() {
        let from = stream::pending::<io::Result<Vec<u8>>>().into_async_read();
        let error = Listener { from, silence: Some(Duration::from_secs(40)) }.said().await.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("silent for 40 seconds"), "{error}");
    }
}
