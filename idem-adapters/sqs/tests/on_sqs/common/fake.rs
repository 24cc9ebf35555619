//! A server that answers each action as a test says, for answers that no test server gives.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

/// Starts a server whose answer to an action, for example `ReceiveMessage`, is an HTTP status and a body. It may depend on how
/// the request was signed. Returns its address.
pub(crate) async fn serve(answer: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static) -> String {
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

async fn connection(client: TcpStream, answer: &(impl Fn(&str, &str) -> (u16, String) + Send + Sync)) {
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
        let mut content = vec![0; length];
        client.read_exact(&mut content).await.unwrap();
        let content = String::from_utf8(content).unwrap();
        let (status, body) = answer(&action, &signed);
        if action == "ReceiveMessage" && body == NO_MESSAGE {
            // A real queue waits for as long as it was asked to.
            let seconds = content.split(r#""WaitTimeSeconds":"#).nth(1).and_then(|rest| rest.split([',', '}']).next());
            sleep(Duration::from_secs(seconds.map_or(0, |seconds| seconds.parse().unwrap()))).await;
        }
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        if client.get_mut().write_all(format!("{head}{body}").as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The answer to a receive if no message has come.
const NO_MESSAGE: &str = "{}";

/// The answer of an empty queue to each action.
pub(crate) fn empty_queue(action: &str) -> (u16, String) {
    let body = match action {
        "GetQueueUrl" => r#"{"QueueUrl":"http://sqs/000000000000/orders"}"#,
        "GetQueueAttributes" => r#"{"Attributes":{"VisibilityTimeout":"30"}}"#,
        "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => return failed_entry("ReceiptHandleIsInvalid"),
        _ => NO_MESSAGE,
    };
    (200, body.to_owned())
}

/// The answer to a receive that brings a message with this handle.
pub(crate) fn message(handle: usize) -> (u16, String) {
    (200, format!(r#"{{"Messages":[{{"MessageId":"m-{handle}","ReceiptHandle":"h-{handle}","Body":"{{}}"}}]}}"#))
}

/// The answer to an action with one entry, which has failed with this code.
pub(crate) fn failed_entry(code: &str) -> (u16, String) {
    (200, format!(r#"{{"Successful":[],"Failed":[{{"Id":"0","Code":"{code}","SenderFault":false}}]}}"#))
}

/// An error with this code.
pub(crate) fn error(status: u16, code: &str, message: &str) -> (u16, String) {
    (status, format!(r#"{{"__type":"com.amazonaws.sqs#{code}","message":"{message}"}}"#))
}
