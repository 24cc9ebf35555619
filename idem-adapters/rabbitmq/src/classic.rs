//! Classic queues, where the user accepts them.

use idem_core::Error;

use crate::address::Address;
use crate::error::refused;

/// Refuses all but a durable classic queue. `text` is the server's answer to the declaration of a quorum queue in its place,
/// which names the first property that differs.
pub(crate) fn check(name: &str, address: &Address, text: &str) -> Result<(), Error> {
    let differs = |property: &str| text.contains(&format!(" arg '{property}"));
    if ["durable", "auto_delete", "exclusive"].into_iter().any(differs) {
        return Err(refused(format!(
            "queue `{name}` on {address} does not outlive its server or its consumers, and its messages are lost with it: \
             declare a durable queue of another name, and bind it as this one is bound. The server says: {text}"
        )));
    }
    // A stream has these arguments, which are not valid for the quorum queue that was asked for.
    if ["x-max-age", "x-stream-"].into_iter().any(differs) || text.contains("'stream'") {
        return Err(refused(format!(
            "queue `{name}` on {address} is a stream, which is never acked: bind a quorum queue beside it and consume that. \
             The server says: {text}"
        )));
    }
    if differs("x-queue-type") && !text.contains("but current is ") {
        return Err(refused(format!(
            "it cannot be found out whether queue `{name}` on {address} is a classic queue, since RabbitMQ cuts its answer off \
             after a name this long: give the queue a shorter name. The server says: {text}"
        )));
    }
    Ok(())
}

/// Says what the queue does not give.
pub(crate) fn warn(name: &str) {
    tracing::warn!(
        queue = name,
        "a classic queue loses its messages with its node, which idem cannot notice: move to a quorum queue"
    );
}
