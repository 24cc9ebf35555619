//! The number of ready messages in the queues. RabbitMQ answers 0 for a queue whose leader takes longer than 250 ms
//! (`rabbit_quorum_queue:stat/2`).

use std::sync::{Arc, Mutex, PoisonError, Weak};

use idem_core::{BoxError, Lag};
use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

/// The connection that is used to query the queues: that of the current subscription.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Weak<Connection>>>);

impl Asked {
    /// Uses this connection from now on, as long as it is open.
    pub(crate) fn set(&self, connection: &Arc<Connection>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(connection);
    }

    /// Returns the handle for some queues. It returns nothing while there is no connection.
    pub(crate) fn lag(&self, queues: Vec<Arc<str>>) -> Lag {
        let (asked, queues) = (self.clone(), Arc::new(queues));
        Lag::new(move || {
            let (connection, queues) = (asked.connection(), Arc::clone(&queues));
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

    fn connection(&self) -> Option<Arc<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
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
