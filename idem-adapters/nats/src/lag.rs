//! The number of messages that the consumer has not delivered yet.

use std::sync::Arc;

use idem_core::Lag;

use crate::connection::Lost;
use crate::link::Link;

/// Returns the handle for a consumer's lag. It always uses the current connection of the source.
pub(crate) fn lag(link: &Link, stream: &Arc<str>, consumer: &str) -> Lag {
    let (link, stream, consumer) = (link.clone(), Arc::clone(stream), Arc::<str>::from(consumer));
    Lag::new(move || {
        let (connection, stream, consumer) = (link.now(), Arc::clone(&stream), Arc::clone(&consumer));
        async move {
            let connection = connection.ok_or(Lost)?;
            let info = tokio::select! {
                biased;
                info = connection.consumer(&stream, &consumer) => info?,
                () = connection.lost.cancelled() => return Err(Lost.into()),
            };
            Ok(vec![(stream, info.num_pending)])
        }
    })
}
