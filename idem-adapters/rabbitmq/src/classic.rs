//! Classic queues, for callers that accept them.

use idem_core::Error;

use crate::address::Address;

/// Refuses any queue but a durable classic queue. `text` is the server's answer to the declaration of a quorum queue
/// with the same name; it names the first property that differs.
pub(crate) fn check(name: &str, address: &Address, text: &str) -> Result<(), Error> {
    let differs = |property: &str| text.contains(&format!(" arg '{property}"));
    if ["durable", "auto_delete", "exclusive"].into_iter().any(differs) {
        return Err(Error::Config(format!(
            "queue `{name}` on {address} does not outlive its server or its consumers, and its messages are lost with it: \
             declare a durable queue with another name, and give it the bindings of `{name}`. The server says: {text}"
        )));
    }
    // A stream has these arguments, which are invalid for the declared quorum queue.
    let current = text.rsplit_once("but current is ").map(|(_, current)| current);
    let is_stream = ["x-max-age", "x-stream-"].into_iter().any(differs);
    if is_stream || current.is_some_and(|current| current.contains("'stream'")) {
        return Err(Error::Config(format!(
            "queue `{name}` on {address} is a stream, which is never acked: bind a quorum queue beside it and consume that. \
             The server says: {text}"
        )));
    }
    // A queue declared without a type is a classic queue.
    let is_classic = current.is_some_and(|current| current.contains("'classic'") || current.starts_with("none"));
    if differs("x-queue-type") && !is_classic {
        return Err(Error::Config(format!(
            "it cannot be found out whether queue `{name}` on {address} is a classic queue, since RabbitMQ cuts its answer off \
             after a name this long: give the queue a shorter name. The server says: {text}"
        )));
    }
    Ok(())
}

/// Warns that the queue may lose messages.
pub(crate) fn warn(name: &str) {
    tracing::warn!(
        queue = name,
        "a classic queue loses its messages with its node, which idem cannot notice: move to a quorum queue"
    );
}
