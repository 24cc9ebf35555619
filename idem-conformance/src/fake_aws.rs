//! A server that answers each action of AWS as a test says, for answers that no test server gives.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// A request of an SDK of AWS.
#[derive(Debug)]
pub struct AwsRequest {
    /// For example `UpdateItem`.
    pub action: String,
    /// The header of the signature.
    pub signed: String,
    /// The body, in JSON.
    pub body: Vec<u8>,
}

/// Starts a server whose answer is an HTTP status and a body. Returns its address.
///
/// # Panics
/// Panics if no port is free.
pub async fn fake_aws<F>(answer: impl Fn(AwsRequest) -> F + Send + Sync + 'static) -> String
where
    F: Future<Output = (u16, String)> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move { connection(client, &*answer).await });
        }
    });
    address
}

async fn connection<F: Future<Output = (u16, String)> + Send>(
    client: TcpStream,
    answer: &(impl Fn(AwsRequest) -> F + Send + Sync),
) {
    let mut client = BufReader::new(client);
    loop {
        let (mut action, mut signed, mut length) = (String::new(), String::new(), 0_usize);
        loop {
            let mut line = String::new();
            if client.read_line(&mut line).await.unwrap_or_default() == 0 {
                return;
            }
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            match line.split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().unwrap(),
                Some((name, value)) if name.eq_ignore_ascii_case("x-amz-target") => {
                    action = value.rsplit('.').next().unwrap().to_owned();
                }
                Some((name, value)) if name.eq_ignore_ascii_case("authorization") => signed = value.to_owned(),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        client.read_exact(&mut body).await.unwrap();
        let (status, body) = answer(AwsRequest { action, signed, body }).await;
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if client.get_mut().write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}
