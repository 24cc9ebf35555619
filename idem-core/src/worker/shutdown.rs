//! The signals that ask a process to end.

use std::future::pending;
use std::io;

/// Waits until the process is asked to end: by ctrl-c, and on Unix by SIGTERM as well, which Kubernetes, systemd and
/// Docker send before they kill a process. Pass it to [`Worker::run_until`](crate::Worker::run_until).
///
/// ```no_run
/// # use idem_core::{Worker, Store, Source, Handler, HasConnection, Error};
/// # async fn run<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
/// #     store: S, orders: impl Source) -> Result<(), Error> {
/// Worker::new("billing", store, orders).handler::<H>().run_until(idem_core::shutdown_signal()).await
/// # }
/// ```
///
/// Allow the worker its [shutdown timeout](crate::Worker::shutdown_timeout) and about ten seconds more before the
/// process is killed: Kubernetes kills after `terminationGracePeriodSeconds`, which is 30 by default and as long as the
/// default shutdown timeout. A process that is killed loses nothing, but its messages wait until they are delivered
/// again.
///
/// The signals no longer end the process by themselves once this future has been polled. Several calls in one process
/// all complete at the same signal. If a signal cannot be listened for, that is logged as an error, and only the other
/// one counts. It must be awaited in a Tokio runtime.
pub async fn shutdown_signal() {
    tokio::select! {
        () = heard(tokio::signal::ctrl_c(), "ctrl-c") => {}
        () = heard(terminated(), "SIGTERM") => {}
    }
}

/// Completes at the signal; never if it cannot be listened for.
async fn heard(signal: impl Future<Output = io::Result<()>>, name: &str) {
    match signal.await {
        Ok(()) => tracing::info!(signal = name, "received a shutdown signal"),
        Err(error) => {
            tracing::error!(signal = name, %error, "cannot listen for the signal, so it will not drain the worker");
            pending().await
        }
    }
}

#[cfg(unix)]
async fn terminated() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    // `None` would mean that no further signal can arrive.
    match signal(SignalKind::terminate())?.recv().await {
        Some(()) => Ok(()),
        None => pending().await,
    }
}

#[cfg(not(unix))]
async fn terminated() -> io::Result<()> {
    pending().await
}
