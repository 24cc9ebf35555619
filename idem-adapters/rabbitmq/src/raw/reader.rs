//! Reads messages that lapin cannot parse: their short strings are bytes here, as in RabbitMQ.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use amq_protocol::protocol::basic::{self, AMQPMethod as Basic, parse_properties};
use amq_protocol::protocol::{AMQPClass, channel};
use idem_core::{BoxError, Settled};
use lapin::types::FieldTable;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::cursor::Cursor;
use super::frames::{self, BODY, CHANNEL, HEADER, METHOD, unexpected};
use super::login::Raw;
use crate::error::{CANCELLED, UNANSWERED};

/// The consumer's tag on its channel.
const CONSUMER: &str = "idem";

/// A queue that delivers nothing for so long has nothing more for this consumer.
const QUIET: Duration = Duration::from_millis(500);

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

impl Message {
    /// Reports whether lapin can parse it.
    pub(crate) fn is_readable(&self) -> bool {
        let is_text = |bytes: &[u8]| std::str::from_utf8(bytes).is_ok();
        let properties = parse_properties(self.properties.as_slice());
        is_text(&self.exchange) && is_text(&self.routing_key) && matches!(properties, Ok(([], _)))
    }
}

/// What the server says to a consumer.
enum Said {
    Message(Message),
    /// No more messages follow.
    Cancelled,
    Other,
}

impl Raw {
    /// Reads the next messages of a queue, at most `count`, and returns those that lapin cannot parse. The others are
    /// released; with an order, they stay with this consumer until the connection ends. If it is dropped, the connection
    /// must be dropped.
    pub(crate) async fn unreadable(
        &mut self,
        queue: &str,
        count: u16,
        arguments: FieldTable,
        ordered: bool,
    ) -> io::Result<Vec<Message>> {
        self.subscribe(queue, count, arguments).await?;
        let (mut readable, mut unreadable, mut left) = (Vec::new(), Vec::new(), count);
        let mut sort = |message: Message| {
            if message.is_readable() { readable.push(message.tag) } else { unreadable.push(message) }
        };
        while left > 0
            && let Ok(kind) = timeout(QUIET, frames::kind(&mut self.stream)).await
        {
            if let Said::Message(message) = self.said(kind?).await? {
                left -= 1;
                sort(message);
            }
        }
        // A quorum queue without a delivery limit puts a released message behind all others, and a cancelled consumer lets
        // the next one continue behind those that it holds. The end of the connection returns them to their places.
        if ordered {
            return Ok(unreadable);
        }
        let cancel = basic::Cancel { consumer_tag: CONSUMER.into(), nowait: false };
        self.send(CHANNEL, AMQPClass::Basic(Basic::Cancel(cancel))).await?;
        loop {
            let kind = frames::kind(&mut self.stream).await?;
            match self.said(kind).await? {
                Said::Message(message) => sort(message),
                Said::Cancelled => break,
                Said::Other => {}
            }
        }
        let mut released = Vec::new();
        for tag in readable {
            released.append(&mut frames::method(CHANNEL, &AMQPClass::Basic(release(tag)))?);
        }
        frames::write(&mut self.stream, &released).await?;
        Ok(unreadable)
    }

    /// Opens a channel with one consumer and this prefetch.
    async fn subscribe(&mut self, queue: &str, prefetch_count: u16, arguments: FieldTable) -> io::Result<()> {
        use basic::AMQPMethod::{Consume, ConsumeOk, Qos, QosOk};
        self.send(CHANNEL, AMQPClass::Channel(channel::AMQPMethod::Open(channel::Open {}))).await?;
        let AMQPClass::Channel(channel::AMQPMethod::OpenOk(_)) = self.method().await? else { return Err(unexpected()) };
        self.send(CHANNEL, AMQPClass::Basic(Qos(basic::Qos { prefetch_count, global: false }))).await?;
        let AMQPClass::Basic(QosOk(_)) = self.method().await? else { return Err(unexpected()) };
        let consume = basic::Consume {
            queue: queue.into(),
            consumer_tag: CONSUMER.into(),
            no_local: false,
            no_ack: false,
            exclusive: false,
            nowait: false,
            arguments,
        };
        self.send(CHANNEL, AMQPClass::Basic(Consume(consume))).await?;
        let AMQPClass::Basic(ConsumeOk(_)) = self.method().await? else { return Err(unexpected()) };
        Ok(())
    }

    /// Reads the rest of a frame of this kind, and of the message that it begins.
    async fn said(&mut self, kind: u8) -> io::Result<Said> {
        let content = frames::rest(&mut self.stream).await?;
        if kind != METHOD {
            return Ok(Said::Other);
        }
        let mut method = Cursor(&content);
        match (method.u16(), method.u16()) {
            (Some(60), Some(60)) => self.message(method).await.map(Said::Message),
            (Some(60), Some(31)) => Ok(Said::Cancelled),
            (Some(60), Some(30)) => Err(io::Error::other(CANCELLED)),
            // The server closes the channel or the connection, with a reason.
            (Some(20), Some(40)) | (Some(10), Some(50)) => {
                Err(method.reason().map_or_else(unexpected, io::Error::other))
            }
            _ => Ok(Said::Other),
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

    /// Reads a frame of this kind. The server sends no heartbeats in between, since none were asked for.
    async fn frame(&mut self, kind: u8) -> io::Result<Vec<u8>> {
        match frames::read(&mut self.stream).await? {
            (of, content) if of == kind => Ok(content),
            _ => Err(unexpected()),
        }
    }
}

fn deliver(method: &mut Cursor<'_>) -> Option<Message> {
    let _consumer = method.short()?;
    let (tag, redelivered) = (method.u64()?, method.u8()? != 0);
    let (exchange, routing_key) = (method.short()?.to_vec(), method.short()?.to_vec());
    Some(Message { tag, redelivered, exchange, routing_key, ..Default::default() })
}

/// The connection of messages that lapin cannot parse, until it ends.
pub(crate) type Kept = Mutex<Option<Raw>>;

/// Acks a message on the connection that has read it. The last message that is settled closes the connection.
pub(crate) async fn ack(kept: Arc<Kept>, delivery_tag: u64) -> Result<Settled, BoxError> {
    settle(kept, Basic::Ack(basic::Ack { delivery_tag, multiple: false })).await
}

/// Releases a message, as [`ack`] acks one.
pub(crate) async fn nack(kept: Arc<Kept>, delivery_tag: u64) -> Result<Settled, BoxError> {
    settle(kept, release(delivery_tag)).await
}

/// Ends the connection, unless it has ended: what it keeps returns to the queue.
pub(crate) async fn end(kept: &Kept) {
    let raw = kept.lock().await.take();
    if let Some(raw) = raw {
        raw.close().await;
    }
}

async fn settle(kept: Arc<Kept>, method: Basic) -> Result<Settled, BoxError> {
    let mut place = kept.lock().await;
    // Taken out meanwhile: if this future is dropped behind a part of the frame, the connection ends.
    let Some(mut raw) = place.take() else { return Ok(Settled::Stale) };
    raw.send(CHANNEL, AMQPClass::Basic(method)).await.map_err(|_| UNANSWERED)?;
    *place = Some(raw);
    drop(place);
    if let Some(raw) = Arc::into_inner(kept).and_then(Mutex::into_inner) {
        raw.close().await;
    }
    Ok(Settled::Sent)
}

fn release(delivery_tag: u64) -> Basic {
    Basic::Nack(basic::Nack { delivery_tag, multiple: false, requeue: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
        [&[kind, 0, 1], &(content.len() as u32).to_be_bytes()[..], content, &[0xCE]].concat()
    }

    async fn said(frames: &[Vec<u8>]) -> io::Result<Said> {
        let mut raw = Raw::on(Box::new(futures_util::io::Cursor::new(frames.concat())));
        let kind = frames::kind(&mut raw.stream).await?;
        raw.said(kind).await
    }

    /// Consumer `c`, tag 7, redelivered, default exchange, a routing key that is not UTF-8.
    const DELIVER: &[u8] = &[0, 60, 0, 60, 1, b'c', 0, 0, 0, 0, 0, 0, 0, 7, 1, 0, 1, 0xFF];

    #[tokio::test]
    async fn a_message_is_read_from_as_many_frames_as_it_has() {
        let header = [&[0, 60, 0, 0], &4_u64.to_be_bytes()[..], &[0, 0x80, 1, 0xFE]].concat();
        let frames = [frame(METHOD, DELIVER), frame(HEADER, &header), frame(BODY, b"abc"), frame(BODY, b"d")];
        let Said::Message(message) = said(&frames).await.unwrap() else { panic!("no message") };
        assert_eq!((message.tag, message.redelivered), (7, true));
        assert_eq!((&message.exchange[..], &message.routing_key[..]), (&[][..], &[0xFF][..]));
        assert_eq!((&message.properties[..], &message.body[..]), (&[0, 0x80, 1, 0xFE][..], &b"abcd"[..]));
    }

    #[tokio::test]
    async fn the_reason_for_the_end_of_the_consumer_is_reported() {
        for (method, expected) in [
            (&[0, 60, 0, 30, 1, b'c', 1][..], "cancelled"),
            (&[0, 20, 0, 40, 1, 0x96, 3, b'w', b'h', b'y', 0, 0, 0, 0], "406 why"),
            (&[0, 10, 0, 50, 1, 0x40, 3, b'w', b'h', 0xFF, 0, 0, 0, 0], "320 wh\u{fffd}"),
            (&[0, 60, 0, 60, 200], "AMQP 0-9-1"),
        ] {
            let error = said(&[frame(METHOD, method)]).await.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(matches!(said(&[frame(METHOD, &[0, 60, 0, 31, 1, b'c'])]).await, Ok(Said::Cancelled)));
        assert!(said(&[]).await.is_err(), "the end of the stream");
    }

    #[test]
    fn a_message_is_readable_if_all_its_short_strings_are_utf_8() {
        let message = |routing_key: &[u8], properties: &[u8]| {
            let (routing_key, properties) = (routing_key.to_vec(), properties.to_vec());
            Message { routing_key, properties, ..Default::default() }.is_readable()
        };
        assert!(message(b"orders", &[0, 0]) && message(b"orders", &[0, 0x80, 1, b'm']));
        // A header whose value is not UTF-8.
        assert!(message(b"orders", &[0x20, 0, 0, 0, 0, 8, 1, b'h', b'S', 0, 0, 0, 1, 0xFF]));
        assert!(!message(&[0xFF], &[0, 0]));
        for properties in [
            &[0, 0x80, 2, 0xFF, 0xFE][..],
            &[0x80, 0, 1, 0xFF],
            &[0x20, 0, 0, 0, 0, 4, 2, b'h', 0xFC, b'V'],
            &[0x20, 0, 0, 0, 0, 10, 1, b'h', b'F', 0, 0, 0, 3, 1, 0xFB, b'V'],
            &[0, 0x80, 9],
            &[0, 0, 1],
        ] {
            assert!(!message(b"orders", properties), "{properties:?}");
        }
    }
}
