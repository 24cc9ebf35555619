//! A handler that pays by an external call, and one that pays in its transaction, with a new key for each request; and their
//! provider as a server, with its client. A request is one line, a key and a body, and so is its answer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use idem::BoxError;
use idem::prelude::*;
use idem_test::provider::Provider;
use sqlx::PgConnection;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::plan::Order;
use crate::watched::Watch;

/// The state of the workers that pay.
#[derive(Debug, Clone)]
pub(crate) struct Payer {
    pub(crate) watch: Watch,
    pub(crate) bank: Bank,
}

#[external(key_life = "24h", timeout = "2s")]
pub(crate) async fn charge(order: &Order, key: OutboundKey, State(payer): State<Payer>) -> Result<String, CallError> {
    let _run = payer.watch.run(order.id);
    match payer.bank.charge(Some(key.as_str()), order.id).await? {
        (200, number) => Ok(number),
        (429, why) => Err(CallError::not_done(why)),
        (status, why) => Err(format!("the status {status}: {why}").into()),
    }
}

#[idempotent(key = "key", name = "called", call = charge)]
pub(crate) async fn called(
    order: Order,
    Called(number): Called<String>,
    State(payer): State<Payer>,
    tx: &mut PgConnection,
) -> Result<(), BoxError> {
    let _run = payer.watch.run(order.id);
    write(&order, &number, tx).await
}

#[idempotent(key = "key", name = "naive")]
pub(crate) async fn naive(order: Order, State(payer): State<Payer>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let _run = payer.watch.run(order.id);
    let (status, number) = payer.bank.charge(None, order.id).await?;
    if status != 200 {
        return Err(format!("the status {status}").into());
    }
    write(&order, &number, tx).await?;
    payer.watch.returned(order.id);
    Ok(())
}

async fn write(order: &Order, number: &str, tx: &mut PgConnection) -> Result<(), BoxError> {
    let insert = sqlx::query("INSERT INTO demo.payments (message, charge) VALUES ($1, $2)");
    insert.bind(i64::try_from(order.id)?).bind(number).execute(tx).await?;
    Ok(())
}

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
