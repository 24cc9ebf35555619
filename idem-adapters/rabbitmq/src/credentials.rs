//! The login for the server, and its renewal.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

use idem_core::{BoxError, Callback};
use lapin::Connection;
use lapin::uri::AMQPUserInfo;
use tokio::time::{sleep, timeout};

/// A user name and password. For a token: the name that the server's plugin expects, and the token as the password.
///
/// `Debug` shows only the name.
///
/// ```no_run
/// # use std::time::Duration;
/// # use idem_core::BoxError;
/// # use idem_rabbitmq::{Credentials, RabbitMq};
/// # async fn token() -> Result<String, BoxError> { Ok(String::new()) }
/// let options = RabbitMq::options("amqps://rabbit/shop").credentials(|| async {
///     Ok(Credentials::new("billing", token().await?).valid_for(Duration::from_secs(3600)))
/// });
/// ```
#[derive(Clone)]
pub struct Credentials {
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) valid_for: Option<Duration>,
}

impl Credentials {
    /// Creates credentials without an expiry.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into(), valid_for: None }
    }

    /// Sets how long the credentials are valid from now on, as for a token. After three quarters of that time, the
    /// callback is called again and the new credentials are sent to the server on the open connection, so that it stays
    /// open and nothing unsettled is returned. If the new credentials are for another user, they are not sent.
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }

    pub(crate) fn userinfo(&self) -> AMQPUserInfo {
        AMQPUserInfo { username: self.user.clone(), password: self.password.clone() }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How a connection logs in.
pub(crate) enum Login {
    /// With the user and password of the URL.
    Url(AMQPUserInfo),
    /// With the result of a callback, called for each connection.
    Asked(Callback<Credentials>),
    /// With the client certificate: SASL EXTERNAL.
    Certificate,
}

impl Login {
    /// Returns the credentials for one connection.
    pub(crate) async fn credentials(&self) -> Result<Credentials, BoxError> {
        match self {
            Self::Url(userinfo) => Ok(Credentials::new(&*userinfo.username, &*userinfo.password)),
            Self::Certificate => Ok(Credentials::new("", "")),
            Self::Asked(callback) => callback.call().await,
        }
    }

    /// Returns the user as shown in errors.
    pub(crate) fn user(&self) -> String {
        match self {
            Self::Url(userinfo) => format!("user `{}`", userinfo.username),
            Self::Asked(_) => "user of the callback".to_owned(),
            Self::Certificate => "user of the client's certificate".to_owned(),
        }
    }

    /// Returns the fix if the server refuses the login.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Url(_) => "check user and password; RabbitMQ lets the user `guest` in from localhost only",
            Self::Asked(_) => "check what the callback given to .credentials(..) answers: the server refuses it",
            Self::Certificate => {
                "check that the server takes certificates for logins (plugin rabbitmq_auth_mechanism_ssl, EXTERNAL among \
                 its auth_mechanisms), and that it has the user that the certificate names (ssl_cert_login_from)"
            }
        }
    }
}

/// The time limit for the server's answer.
const ANSWER: Duration = Duration::from_secs(10);
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
        timeout(ANSWER, renewed).await.map_err(|_| "the server has not answered")??;
        Ok(next.valid_for)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_show_no_password() {
        let shown = format!("{:?}", Credentials::new("billing", "s3ntinel"));
        assert!(shown.contains("billing") && !shown.contains("s3ntinel"), "{shown}");
    }
}
