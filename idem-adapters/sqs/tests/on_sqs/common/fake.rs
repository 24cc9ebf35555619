//! A server whose answers a test chooses, and the answers of SQS.

use std::time::Duration;

use idem_conformance::fake_aws;
use tokio::time::sleep;

/// Starts a server whose answer to an action, for example `ReceiveMessage`, is an HTTP status and a body. It may depend on how
/// the request was signed. Returns its address.
pub(crate) async fn serve(answer: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static) -> String {
    fake_aws(move |request| {
        let answer = answer(&request.action, &request.signed);
        async move {
            if request.action == "ReceiveMessage" && answer.1 == NO_MESSAGE {
                // A real queue waits for as long as it was asked to.
                let body = String::from_utf8(request.body).unwrap();
                let seconds = body.split(r#""WaitTimeSeconds":"#).nth(1).and_then(|rest| rest.split([',', '}']).next());
                sleep(Duration::from_secs(seconds.map_or(0, |seconds| seconds.parse().unwrap()))).await;
            }
            answer
        }
    })
    .await
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
