//! The leases of all deliveries of a batch.

use std::convert::Infallible;
use std::pin::pin;

use futures_util::future::{Either, join_all, select};

use crate::Acker;

/// Does the work, and extends the leases of all these deliveries at a third of the shortest for as long as it lives.
pub(crate) async fn extended<A: Acker, T>(ackers: &mut [A], work: impl Future<Output = T>) -> T {
    let Some(lease) = ackers.iter().filter_map(Acker::lease).min() else { return work.await };
    let extend = async {
        loop {
            tokio::time::sleep(lease / 3).await;
            for error in join_all(ackers.iter_mut().map(Acker::extend)).await.into_iter().filter_map(Result::err) {
                tracing::debug!(error, "the lease of a delivery was not extended");
            }
        }
    };
    match select(pin!(work), pin!(extend)).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => {
            let never: Infallible = never;
            match never {}
        }
    }
}
