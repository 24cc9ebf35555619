//! How many messages are ready in the queue.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use idem_core::{BoxError, Lag};
use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

/// The connection by which the queue is asked for: that of the subscription, whenever it is followed by another one.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Weak<Connection>>>);

impl Asked {
    /// From now on this connection is asked, as long as it is there.
    pub(crate) fn set(&self, connection: &Arc<Connection>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(connection);
    }

    /// The handle for a queue. It knows nothing while messages are taken one at a time, by a connection that is not lapin's.
    pub(crate) fn lag(&self, queue: &Arc<str>) -> Lag {
        let (asked, queue) = (self.clone(), Arc::clone(queue));
        Lag::new(move || {
            let (connection, queue) = (asked.connection(), Arc::clone(&queue));
            async move {
                let Some(connection) = connection else { return Ok(Vec::new()) };
                let ready = ready(&connection, &queue).await?;
                Ok(vec![(queue, ready)])
            }
        })
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

/// On a channel of its own: a declaration that is refused closes its channel, and the consumer's must stay open.
async fn ready(connection: &Connection, queue: &str) -> Result<u64, BoxError> {
    let channel = connection.create_channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let found = channel.queue_declare(queue.into(), passive, FieldTable::default()).await?;
    let ready = found.message_count().into();
    channel.close(200, "done".into()).await?;
    Ok(ready)
}
