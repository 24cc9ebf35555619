//! As whom the server is spoken to.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use idem_core::BoxError;
use lapin::uri::AMQPUserInfo;
use tokio::time::timeout;

/// A user's name and password; for a token, whatever name the server's plugin wants, and the token as the password.
///
/// `Debug` shows the name only.
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
    /// Of this user.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into(), valid_for: None }
    }

    /// For how long from now they hold, as a token does. When three quarters of it are over, the next ones are asked for and
    /// given to the server on the connection that stands, so that it need not end, and nothing that is unsettled is returned.
    /// Where those are of another user, the connection is left as it is.
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
    /// As the URL says.
    Url(AMQPUserInfo),
    /// As is asked for at each connection.
    Asked(Ask),
    /// By the client's certificate: SASL EXTERNAL.
    Certificate,
}

/// A callback of the user's.
pub(crate) type Ask =
    Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Credentials, BoxError>> + Send>> + Send + Sync>;

/// How long a callback may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Calls the callback, within its time limit.
pub(crate) async fn ask(callback: &Ask) -> Result<Credentials, BoxError> {
    match timeout(LIMIT, callback()).await {
        Ok(asked) => asked,
        Err(_) => Err(format!("it has not answered within {} seconds", LIMIT.as_secs()).into()),
    }
}

impl Login {
    /// The credentials for one connection.
    pub(crate) async fn credentials(&self) -> Result<Credentials, BoxError> {
        match self {
            Self::Url(userinfo) => Ok(Credentials::new(&*userinfo.username, &*userinfo.password)),
            Self::Certificate => Ok(Credentials::new("", "")),
            Self::Asked(callback) => ask(callback).await,
        }
    }

    /// As an error names it.
    pub(crate) fn user(&self) -> String {
        match self {
            Self::Url(userinfo) => format!("user `{}`", userinfo.username),
            Self::Asked(_) => "user of the callback".to_owned(),
            Self::Certificate => "user of the client's certificate".to_owned(),
        }
    }

    /// The cure if the server refuses the login.
    pub(crate) fn cure(&self) -> &'static str {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_callback_that_does_not_answer_is_given_up() {
        let login = Login::Asked(Arc::new(|| Box::pin(std::future::pending())));
        let error = login.credentials().await.unwrap_err().to_string();
        assert!(error.contains("within 10 seconds"), "{error}");
    }

    #[test]
    fn credentials_show_no_password() {
        let shown = format!("{:?}", Credentials::new("billing", "s3ntinel"));
        assert!(shown.contains("billing") && !shown.contains("s3ntinel"), "{shown}");
    }
}
