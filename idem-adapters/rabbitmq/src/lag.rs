//! How many messages are ready in the queues.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use idem_core::{BoxError, Lag};
use lapin::Connection;
use lapin::options::QueueDeclareOptions;
use lapin::types::FieldTable;

/// The connection by which the queues are asked for: that of the subscription, whenever it is followed by another one.
#[derive(Clone, Default)]
pub(crate) struct Asked(Arc<Mutex<Weak<Connection>>>);

impl Asked {
    /// From now on this connection is asked, as long as it is there.
    pub(crate) fn set(&self, connection: &Arc<Connection>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(connection);
    }

    /// The handle for some queues. It knows nothing while there is no connection of lapin's, since messages of all of them are
    /// taken one at a time.
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
                // One queue that is gone hides no other.
                failed.filter(|_| lags.is_empty()).map_or(Ok(lags), Err)
            }
        })
    }

    fn connection(&self) -> Option<Arc<Connection>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

/// On a separate channel: a declaration that is refused closes its channel, and the consumer's must stay open.
async fn ready(connection: &Connection, queue: &str) -> Result<u64, BoxError> {
    let channel = connection.create_channel().await?;
    let passive = QueueDeclareOptions { passive: true, ..Default::default() };
    let found = channel.queue_declare(queue.into(), passive, FieldTable::default()).await?;
    let ready = found.message_count().into();
    channel.close(200, "done".into()).await?;
    Ok(ready)
}
