//! Frames, which contain everything that AMQP sends.

use std::io;

use amq_protocol::protocol::basic::gen_properties;
use amq_protocol::protocol::{AMQPClass, gen_class};
use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use lapin::BasicProperties;

pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const HEARTBEAT: u8 = 8;
const END: u8 = 0xCE;

/// The only channel of a connection.
pub(crate) const CHANNEL: u16 = 1;

/// A connection for reading and writing frames.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Larger than any frame: RabbitMQ offers 128 KiB.
const LIMIT: usize = 16 * 1024 * 1024;

/// Reads the type and the content of the next frame. Not cancel safe.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    Ok((kind(from).await?, rest(from).await?))
}

/// Reads the type of the next frame. Cancel safe: it is one byte.
pub(super) async fn kind(from: &mut (impl AsyncRead + Unpin)) -> io::Result<u8> {
    let mut kind = [0; 1];
    from.read_exact(&mut kind).await?;
    Ok(kind[0])
}

/// Reads the content of a frame, behind its type. Not cancel safe.
pub(super) async fn rest(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut head = [0; 6];
    from.read_exact(&mut head).await?;
    let [_, _, a, b, c, d] = head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(io::Error::other)?;
    if length > LIMIT {
        return Err(unexpected());
    }
    let mut content = vec![0; length + 1];
    from.read_exact(&mut content).await?;
    match content.pop() {
        Some(END) => Ok(content),
        _ => Err(unexpected()),
    }
}

pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), frames: &[u8]) -> io::Result<()> {
    to.write_all(frames).await?;
    to.flush().await
}

/// Encodes a method as a frame.
pub(crate) fn method(channel: u16, class: &AMQPClass) -> io::Result<Vec<u8>> {
    let written = gen_class(class)(Vec::new().into()).map_err(|error| io::Error::other(error.to_string()))?;
    frame(METHOD, channel, &written.into_inner().0)
}

/// Encodes the properties of a message of this size as a frame.
pub(crate) fn header(channel: u16, size: usize, properties: &BasicProperties) -> io::Result<Vec<u8>> {
    const BASIC: u16 = 60;
    let mut content = BASIC.to_be_bytes().to_vec();
    // The weight, which is unused.
    content.extend_from_slice(&[0; 2]);
    content.extend_from_slice(&u64::try_from(size).map_err(io::Error::other)?.to_be_bytes());
    let written = gen_properties(properties)(content.into()).map_err(|error| io::Error::other(error.to_string()))?;
    frame(HEADER, channel, &written.into_inner().0)
}

/// Encodes a part of a payload as a frame.
pub(crate) fn body(channel: u16, part: &[u8]) -> io::Result<Vec<u8>> {
    frame(BODY, channel, part)
}

pub(super) fn heartbeat() -> io::Result<Vec<u8>> {
    frame(HEARTBEAT, 0, &[])
}

fn frame(kind: u8, channel: u16, content: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(content.len()).map_err(io::Error::other)?;
    let mut frame = vec![kind];
    frame.extend_from_slice(&channel.to_be_bytes());
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(content);
    frame.push(END);
    Ok(frame)
}

pub(super) fn unexpected() -> io::Error {
    io::Error::other("the server does not speak AMQP 0-9-1 as it should")
}
