//! A connection without lapin, for the few frames that lapin does not hand out.

use std::io;
use std::time::Duration;

use amq_protocol::auth::Credentials;
use amq_protocol::protocol::connection::{AMQPMethod, Close, Open, StartOk, TuneOk};
use amq_protocol::protocol::{AMQPClass, gen_class, parse_class};
use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use idem_core::Error;
use lapin::tcp::AMQPUriTcpExt;
use lapin::types::{AMQPValue, FieldTable};
use lapin::uri::{AMQPScheme, AMQPUri};
use tokio::time::timeout;

use crate::config::Config;
use crate::error;

/// From the first packet to the end of the login, and for the goodbye.
const CONNECT: Duration = Duration::from_secs(10);
const CLOSE: Duration = Duration::from_secs(5);

/// More than any frame: RabbitMQ offers 128 KiB.
const FRAME: usize = 16 * 1024 * 1024;
const METHOD: u8 = 1;
const END: u8 = 0xCE;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection that is logged in. It sends no heartbeats and asks for none, so it is for a moment.
pub(crate) struct Bare {
    stream: Box<dyn Duplex>,
    /// As the server says it, `4.0.5`.
    version: String,
}

impl Bare {
    /// Connects and logs in, with the TLS and the login of the source.
    pub(crate) async fn open(config: &Config) -> Result<Self, Error> {
        let opened = timeout(CONNECT, Self::login(config))
            .await
            .unwrap_or_else(|_| Err(io::Error::other(format!("no answer within {} seconds", CONNECT.as_secs()))));
        opened.map_err(|error| error::connecting(&config.address, error.into()))
    }

    /// The first number of the server's version; `None` where it names none.
    pub(crate) fn major(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }

    /// Says goodbye.
    pub(crate) async fn close(mut self) {
        let close = Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
        let _ = timeout(CLOSE, async {
            self.send(0, AMQPClass::Connection(AMQPMethod::Close(close))).await?;
            while !matches!(self.method().await?, AMQPClass::Connection(AMQPMethod::CloseOk(_))) {}
            self.stream.close().await
        })
        .await;
    }

    async fn login(config: &Config) -> io::Result<Self> {
        let mut bare = Self { stream: dial(config).await?, version: String::new() };
        bare.stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        bare.stream.flush().await?;
        let AMQPClass::Connection(AMQPMethod::Start(start)) = bare.method().await? else { return Err(unexpected()) };
        if let Some(AMQPValue::LongString(version)) = start.server_properties.inner().get("version") {
            bare.version = version.to_string();
        }
        let mechanism = config.uri.query.auth_mechanism.unwrap_or_default();
        let credentials = Credentials::from(config.uri.authority.userinfo.clone());
        let answer = StartOk {
            client_properties: properties(),
            mechanism: mechanism.name().into(),
            response: credentials.sasl_auth_string(mechanism),
            locale: "en_US".into(),
        };
        bare.send(0, AMQPClass::Connection(AMQPMethod::StartOk(answer))).await?;
        let AMQPClass::Connection(AMQPMethod::Tune(tune)) = bare.method().await? else { return Err(unexpected()) };
        let tuned = TuneOk { channel_max: tune.channel_max, frame_max: tune.frame_max, heartbeat: 0 };
        bare.send(0, AMQPClass::Connection(AMQPMethod::TuneOk(tuned))).await?;
        let open = Open { virtual_host: config.uri.vhost.as_str().into() };
        bare.send(0, AMQPClass::Connection(AMQPMethod::Open(open))).await?;
        match bare.method().await? {
            AMQPClass::Connection(AMQPMethod::OpenOk(_)) => Ok(bare),
            _ => Err(unexpected()),
        }
    }

    async fn send(&mut self, channel: u16, class: AMQPClass) -> io::Result<()> {
        let written = gen_class(&class)(Vec::new().into()).map_err(|error| io::Error::other(error.to_string()))?;
        let (payload, _) = written.into_inner();
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let mut frame = vec![METHOD];
        frame.extend_from_slice(&channel.to_be_bytes());
        frame.extend_from_slice(&length.to_be_bytes());
        frame.extend_from_slice(&payload);
        frame.push(END);
        self.stream.write_all(&frame).await?;
        self.stream.flush().await
    }

    /// The next method. An end that the server gives a reason for is an error with that reason.
    async fn method(&mut self) -> io::Result<AMQPClass> {
        loop {
            let (kind, payload) = self.frame().await?;
            if kind != METHOD {
                continue;
            }
            let (_, class) = parse_class(payload.as_slice()).map_err(|_| unexpected())?;
            if let AMQPClass::Connection(AMQPMethod::Close(Close { reply_code, reply_text, .. })) = &class {
                return Err(io::Error::other(format!("{reply_code} {reply_text}")));
            }
            return Ok(class);
        }
    }

    async fn frame(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).await?;
        let [kind, _, _, a, b, c, d] = head;
        let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).map_err(io::Error::other)?;
        if length > FRAME {
            return Err(unexpected());
        }
        let mut payload = vec![0; length + 1];
        self.stream.read_exact(&mut payload).await?;
        match payload.pop() {
            Some(END) => Ok((kind, payload)),
            _ => Err(unexpected()),
        }
    }
}

async fn dial(config: &Config) -> io::Result<Box<dyn Duplex>> {
    let runtime = lapin::runtime::default_runtime().map_err(io::Error::other)?;
    let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..config.uri.clone() };
    let stream = AMQPUriTcpExt::connect_async(&plain, &runtime).await?;
    match &config.tls {
        Some(tls) => Ok(Box::new(stream.into_rustls(tls, &plain.authority.host).await?)),
        None => Ok(Box::new(stream)),
    }
}

/// A refused login is answered instead of hung up on.
fn properties() -> FieldTable {
    let mut capabilities = FieldTable::default();
    capabilities.insert("authentication_failure_close".into(), true.into());
    let mut properties = FieldTable::default();
    properties.insert("product".into(), AMQPValue::LongString("idem".into()));
    properties.insert("capabilities".into(), AMQPValue::FieldTable(capabilities));
    properties
}

fn unexpected() -> io::Error {
    io::Error::other("the server does not speak AMQP 0-9-1 as it should")
}
