//! Answers of a server of DynamoDB, and a request that is passed on to a real one.

use idem_conformance::AwsRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Passes a request on to a server that closes the connection behind its answer.
pub(crate) async fn pass_on(server: &str, request: &AwsRequest) -> (u16, String) {
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
