//! Renewal of credentials that expire while a connection is open.

use std::sync::Weak;
use std::time::Duration;

use idem_core::{BoxError, Callback};
use lapin::Connection;
use tokio::time::{sleep, timeout};

use crate::credentials::Credentials;

/// The time limit for the server's answer.
const LIMIT: Duration = Duration::from_secs(10);
/// The shortest interval between two renewals, however short the validity.
const SHORTEST: Duration = Duration::from_secs(1);

/// Sends the next credentials to the server before those of a connection expire.
pub(crate) struct Renewal {
    pub(crate) callback: Callback<Credentials>,
    /// The user of the connection.
    pub(crate) user: String,
    pub(crate) address: String,
}

impl Renewal {
    /// Renews the credentials until the connection has ended or the new credentials do not expire. Retries after an
    /// error; the server closes the connection once the credentials have expired.
    pub(crate) async fn keep(self, connection: Weak<Connection>, valid_for: Duration) {
        let mut wait = valid_for / 4 * 3;
        loop {
            sleep(wait.max(SHORTEST)).await;
            let Some(connection) = connection.upgrade() else { return };
            match self.renew(&connection).await {
                Ok(Some(valid_for)) => wait = valid_for / 4 * 3,
                Ok(None) => return,
                Err(error) => {
                    wait = valid_for / 20;
                    let address = &self.address;
                    tracing::warn!(%address, error, "the credentials could not be renewed before they run out");
                }
            }
        }
    }

    /// Renews once. Returns how long the new credentials are valid, if they expire.
    async fn renew(&self, connection: &Connection) -> Result<Option<Duration>, BoxError> {
        let next = self.callback.call().await?;
        if next.user != self.user {
            let address = &self.address;
            tracing::debug!(%address, "the next credentials are of another user: they are for the next connection");
            return Ok(None);
        }
        let renewed = connection.update_secret(next.password.into(), "it runs out".into());
        timeout(LIMIT, renewed).await.map_err(|_| "the server has not answered")??;
        Ok(next.valid_for)
    }
}
