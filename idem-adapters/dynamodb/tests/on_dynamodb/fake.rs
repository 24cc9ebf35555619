//! A server that answers each action as a test says, for answers that no test server gives.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct Request {
    /// For example `UpdateItem`.
    pub(crate) action: String,
    /// The header of the signature.
    pub(crate) signed: String,
    pub(crate) body: Vec<u8>,
}

/// Starts a server whose answer is an HTTP status and a body. Returns its address.
pub(crate) async fn serve<F>(answer: impl Fn(Request) -> F + Send + Sync + 'static) -> String
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
    answer: &(impl Fn(Request) -> F + Send + Sync),
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
        let (status, body) = answer(Request { action, signed, body }).await;
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if client.get_mut().write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Passes a request on to a server that closes the connection behind its answer.
pub(crate) async fn pass_on(server: &str, request: &Request) -> (u16, String) {
    let address = server.trim_start_matches("http://");
    let head = format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: application/x-amz-json-1.0\r\n\
         x-amz-target: DynamoDB_20120810.{}\r\nauthorization: {}\r\ncontent-length: {}\r\n\r\n",
        request.action,
        request.signed,
        request.body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&request.body).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The answer of a table that is as it should be.
pub(crate) fn table(action: &str) -> Option<(u16, String)> {
    let body = match action {
        "DescribeTable" => {
            r#"{"Table":{"TableName":"idem","TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"pk","KeyType":"HASH"}],
                "AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"},{"AttributeName":"dead","AttributeType":"S"}],
                "GlobalSecondaryIndexes":[{"IndexName":"dead","KeySchema":[{"AttributeName":"dead","KeyType":"HASH"}]}]}}"#
        }
        "DescribeTimeToLive" => r#"{"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"ttl"}}"#,
        _ => return None,
    };
    Some((200, body.to_owned()))
}

/// An error with this code.
pub(crate) fn error(code: &str, rest: &str) -> (u16, String) {
    (400, format!(r#"{{"__type":"com.amazonaws.dynamodb.v20120810#{code}","message":"no"{rest}}}"#))
}
