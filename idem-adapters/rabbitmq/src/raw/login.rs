//! Opening a connection and logging in.

use std::io;
use std::time::Duration;

use amq_protocol::auth::Credentials;
use amq_protocol::protocol::connection::{AMQPMethod, Close, Open, StartOk, TuneOk};
use amq_protocol::protocol::{AMQPClass, AMQPError, channel, confirm, exchange, parse_class};
use futures_util::AsyncWriteExt;
use idem_core::Error;
use lapin::ErrorKind;
use lapin::tcp::AMQPUriTcpExt;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::uri::{AMQPScheme, AMQPUri};
use tokio::time::timeout;

use crate::config::Config;
use crate::connection::to_a_host;
use crate::error::{self, silent};

use super::frames::{self, CHANNEL, Duplex, unexpected};
use super::publisher::Publisher;

/// The time limits from the first packet to the end of the login, and for the close.
const CONNECT: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(5);

/// The size of the largest frame if the server has no limit: RabbitMQ's default.
const FRAME_MAX: u32 = 131_072;

/// A logged-in connection. It sends no heartbeats, and asks for none, unless it publishes. While it keeps messages, the
/// server's consumer timeout ends it if it is lost.
pub(crate) struct Raw {
    pub(super) stream: Box<dyn Duplex>,
    /// The index of the host that it is connected to.
    pub(crate) host: usize,
    /// As the server reports it, for example `4.0.5`.
    version: String,
    /// The size of the largest frame.
    frame_max: u32,
}

impl Raw {
    /// Connects with the TLS settings and the login of the source.
    pub(crate) async fn open(config: &Config) -> Result<Self, Error> {
        Self::open_with(config, "connect", 0).await
    }

    /// Connects, and opens a channel in confirm mode. Checks that the exchange exists; the default one, whose name is
    /// empty, always does.
    pub(crate) async fn publish(config: &Config, exchange: &str) -> Result<Publisher, Error> {
        let seconds = config.uri.query.heartbeat.unwrap_or_default();
        let mut raw = Self::open_with(config, &format!("exchange {exchange}"), seconds).await?;
        let opened = timeout(CONNECT, raw.open_confirms(exchange)).await.unwrap_or_else(|_| Err(silent(CONNECT)));
        opened.map_err(|source| error::exchange(exchange, &config.address, answered(source)))?;
        let heartbeat = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Ok(Publisher::new(raw.stream, heartbeat, raw.host, raw.frame_max as usize))
    }

    async fn open_with(config: &Config, purpose: &str, heartbeat: u16) -> Result<Self, Error> {
        let login = |uri| async move {
            let login = timeout(CONNECT, Self::login(config, uri, purpose, heartbeat)).await;
            login.unwrap_or_else(|_| Err(silent(CONNECT))).map_err(answered)
        };
        let (raw, host, _) = to_a_host(config, login).await?;
        Ok(Self { host, ..raw })
    }

    /// Returns the major version of the server; `None` if it reports none.
    pub(crate) fn major(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }

    /// Closes the connection gracefully.
    pub(crate) async fn close(mut self) {
        let close = Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
        let _ = timeout(CLOSE, async {
            self.send(0, AMQPClass::Connection(AMQPMethod::Close(close))).await?;
            // As bytes: messages that cannot be parsed may be on their way.
            while !frames::read(&mut self.stream).await?.1.starts_with(&[0, 10, 0, 51]) {}
            self.stream.close().await
        })
        .await;
    }

    pub(super) fn on(stream: Box<dyn Duplex>) -> Self {
        Self { stream, host: 0, version: String::new(), frame_max: 0 }
    }

    async fn login(config: &Config, uri: AMQPUri, purpose: &str, heartbeat: u16) -> io::Result<Self> {
        let mut raw = Self::on(dial(config, &uri).await?);
        raw.stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        raw.stream.flush().await?;
        let AMQPClass::Connection(AMQPMethod::Start(start)) = raw.method().await? else { return Err(unexpected()) };
        if let Some(AMQPValue::LongString(version)) = start.server_properties.inner().get("version") {
            raw.version = version.to_string();
        }
        let mechanism = uri.query.auth_mechanism.unwrap_or_default();
        let credentials = Credentials::from(uri.authority.userinfo);
        let answer = StartOk {
            client_properties: properties(purpose),
            mechanism: mechanism.name().into(),
            response: credentials.sasl_auth_string(mechanism),
            locale: "en_US".into(),
        };
        raw.send(0, AMQPClass::Connection(AMQPMethod::StartOk(answer))).await?;
        let AMQPClass::Connection(AMQPMethod::Tune(tune)) = raw.method().await? else { return Err(unexpected()) };
        // 0 means no limit.
        raw.frame_max = if tune.frame_max == 0 { FRAME_MAX } else { tune.frame_max };
        let tuned = TuneOk { channel_max: tune.channel_max, frame_max: raw.frame_max, heartbeat };
        raw.send(0, AMQPClass::Connection(AMQPMethod::TuneOk(tuned))).await?;
        let open = Open { virtual_host: uri.vhost.as_str().into() };
        raw.send(0, AMQPClass::Connection(AMQPMethod::Open(open))).await?;
        match raw.method().await? {
            AMQPClass::Connection(AMQPMethod::OpenOk(_)) => Ok(raw),
            _ => Err(unexpected()),
        }
    }

    /// Opens a channel in confirm mode, after a look at the exchange.
    async fn open_confirms(&mut self, exchange: &str) -> io::Result<()> {
        use channel::AMQPMethod::{Open as OpenChannel, OpenOk};
        use confirm::AMQPMethod::{Select, SelectOk};
        use exchange::AMQPMethod::{Declare, DeclareOk};
        self.send(CHANNEL, AMQPClass::Channel(OpenChannel(channel::Open {}))).await?;
        let AMQPClass::Channel(OpenOk(_)) = self.method().await? else { return Err(unexpected()) };
        if !exchange.is_empty() {
            // The server ignores all but the name.
            let passive = exchange::Declare {
                exchange: exchange.into(),
                kind: "direct".into(),
                passive: true,
                durable: false,
                auto_delete: false,
                internal: false,
                nowait: false,
                arguments: FieldTable::default(),
            };
            self.send(CHANNEL, AMQPClass::Exchange(Declare(passive))).await?;
            let AMQPClass::Exchange(DeclareOk(_)) = self.method().await? else { return Err(unexpected()) };
        }
        self.send(CHANNEL, AMQPClass::Confirm(Select(confirm::Select { nowait: false }))).await?;
        let AMQPClass::Confirm(SelectOk(_)) = self.method().await? else { return Err(unexpected()) };
        Ok(())
    }

    pub(super) async fn send(&mut self, channel: u16, class: AMQPClass) -> io::Result<()> {
        frames::write(&mut self.stream, &frames::method(channel, &class)?).await
    }

    /// Returns the next method. A close by the server is an error with the server's reason.
    pub(super) async fn method(&mut self) -> io::Result<AMQPClass> {
        loop {
            let (kind, payload) = frames::read(&mut self.stream).await?;
            if kind != frames::METHOD {
                continue;
            }
            let (_, class) = parse_class(payload.as_slice()).map_err(|_| unexpected())?;
            return Err(match class {
                AMQPClass::Connection(AMQPMethod::Close(close)) => {
                    end(close.reply_code, close.reply_text.clone(), close.try_into())
                }
                AMQPClass::Channel(channel::AMQPMethod::Close(close)) => {
                    end(close.reply_code, close.reply_text.clone(), close.try_into())
                }
                class => return Ok(class),
            });
        }
    }
}

async fn dial(config: &Config, uri: &AMQPUri) -> io::Result<Box<dyn Duplex>> {
    let runtime = lapin::runtime::default_runtime().map_err(io::Error::other)?;
    let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri.clone() };
    let stream = AMQPUriTcpExt::connect_async(&plain, &runtime).await?;
    match &config.tls {
        Some(tls) => Ok(Box::new(stream.into_rustls(tls, &plain.authority.host).await?)),
        None => Ok(Box::new(stream)),
    }
}

/// Returns the client properties. The capabilities make the server answer a refused login instead of closing the
/// connection, and report the end of a queue. `purpose` is shown in the server's list of connections.
fn properties(purpose: &str) -> FieldTable {
    let mut capabilities = FieldTable::default();
    for name in [
        "authentication_failure_close",
        "connection.blocked",
        "consumer_cancel_notify",
        "basic.nack",
        "publisher_confirms",
    ] {
        capabilities.insert(name.into(), true.into());
    }
    let mut properties = FieldTable::default();
    properties.insert("product".into(), AMQPValue::LongString("idem".into()));
    properties.insert("connection_name".into(), AMQPValue::LongString(format!("idem {purpose}").into()));
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    properties
}

/// Converts a close by the server to an error.
fn end(code: u16, text: ShortString, known: Result<AMQPError, impl Sized>) -> io::Error {
    known.map_or_else(|_| io::Error::other(format!("{code} {text}")), io::Error::other)
}

/// Converts an error to lapin's type.
pub(super) fn answered(error: io::Error) -> lapin::Error {
    match error.downcast::<AMQPError>() {
        Ok(answer) => ErrorKind::ProtocolError(answer).into(),
        Err(error) => error.into(),
    }
}
