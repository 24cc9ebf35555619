//! A TCP proxy in front of a broker. Clients connect to the address that a broker advertises, so the proxy writes its own
//! port into those answers.

use idem_conformance::Proxy;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starts a proxy in front of the broker at this `host:port`, which must be the address that it advertises.
pub(crate) async fn start(broker: &str) -> Proxy {
    let target = broker.to_owned();
    let passing = move |client: TcpStream, server| {
        let places = places(&target, client.local_addr().unwrap().port());
        async move { pass(client, server, &places).await }
    };
    Proxy::passing(broker, passing).await
}

/// The address that the broker advertises, and its replacement.
pub(crate) fn places(broker: &str, port: u16) -> (Vec<u8>, Vec<u8>) {
    let (host, real) = broker.rsplit_once(':').unwrap();
    let place = |port: u16| [host.as_bytes(), &i32::from(port).to_be_bytes()].concat();
    (place(real.parse().unwrap()), place(port))
}

/// Forwards data in both directions until one side has closed.
pub(crate) async fn pass(client: impl AsyncRead + AsyncWrite, server: TcpStream, places: &(Vec<u8>, Vec<u8>)) {
    let (mut from_client, to_client) = tokio::io::split(client);
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = answers(from_server, to_client, places) => {}
    }
}

/// Forwards answers frame by frame.
async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (said, instead): &(Vec<u8>, Vec<u8>),
) -> std::io::Result<()> {
    loop {
        let length = from.read_u32().await?;
        let mut frame = vec![0; length as usize];
        from.read_exact(&mut frame).await?;
        while let Some(at) = frame.windows(said.len()).position(|window| window == said) {
            frame[at..at + said.len()].copy_from_slice(instead);
        }
        to.write_u32(length).await?;
        to.write_all(&frame).await?;
        to.flush().await?;
    }
}
