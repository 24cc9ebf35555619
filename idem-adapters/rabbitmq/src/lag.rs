//! The number of ready messages in the queues. RabbitMQ answers 0 for a queue whose leader takes longer than 250 ms
//! (`rabbit_quorum_queue:stat/2`).

use std::sync::{Arc, Weak};

use idem_core::{BoxError, Lag};
use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

/// Returns the handle for some queues, which are asked over this connection as long as it is open.
pub(crate) fn lag(connection: Weak<Connection>, queues: Vec<Arc<str>>) -> Lag {
    let queues = Arc::new(queues);
    Lag::new(move || {
        let (connection, queues) = (connection.upgrade(), Arc::clone(&queues));
        async move {
            let (mut lags, mut failed) = (Vec::new(), None);
            let Some(connection) = connection else { return Ok(lags) };
            for queue in queues.iter() {
                match ready(&connection, queue).await {
                    Ok(ready) => lags.push((Arc::clone(queue), ready)),
                    Err(error) => failed = Some(error),
                }
            }
            // A missing queue does not hide the others.
            failed.filter(|_| lags.is_empty()).map_or(Ok(lags), Err)
        }
    })
}

/// Uses a separate channel: a refused declaration closes its channel, and the consumer's must stay open.
async fn ready(connection: &Connection, queue: &str) -> Result<u64, BoxError> {
    let channel = connection.create_channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let found = channel.queue_declare(queue.into(), passive, FieldTable::default()).await?;
    let ready = found.message_count().into();
    channel.close(200, "done".into()).await?;
    Ok(ready)
}
