//! The provider as a server, and its client. A request is one line, a key and a body, and so is its answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use idem::BoxError;
use idem_test::provider::Provider;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How long a request takes.
const LATENCY: Duration = Duration::from_millis(20);

/// Serves the provider, and returns its address.
pub(crate) async fn serve(provider: Provider) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(answer(provider.clone(), client));
        }
    });
    Ok(address)
}

/// Answers one request, unless its answer gets lost. It goes on if its client is gone.
async fn answer(provider: Provider, mut client: TcpStream) {
    let mut line = String::new();
    if BufReader::new(&mut client).read_line(&mut line).await.is_err() {
        return;
    }
    let Some((key, body)) = line.trim_end().split_once(' ') else { return };
    tokio::time::sleep(LATENCY / 2).await;
    let reply = provider.charge((key != "-").then_some(key), body).await;
    tokio::time::sleep(LATENCY / 2).await;
    if let Ok(reply) = reply {
        let _ = client.write_all(format!("{} {}", reply.status, reply.body).as_bytes()).await;
    }
}

/// The client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bank(pub(crate) SocketAddr);

impl Bank {
    /// Makes a request. An error leaves its effect in doubt.
    pub(crate) async fn charge(self, key: Option<&str>, order: u64) -> Result<(u16, String), BoxError> {
        let mut server = TcpStream::connect(self.0).await?;
        server.write_all(format!("{} {order}\n", key.unwrap_or("-")).as_bytes()).await?;
        let mut answer = String::new();
        server.read_to_string(&mut answer).await?;
        let (status, body) = answer.split_once(' ').ok_or("the answer was lost")?;
        Ok((status.parse()?, body.to_owned()))
    }
}
