//! Logins that change: tokens, and passwords from a callback.
#![expect(unsafe_code, reason = "rdkafka gives tokens only to a client that is polled, which one that asks is not")]

use std::ffi::CString;
use std::fmt;
use std::pin::Pin;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use idem_core::BoxError;
use rdkafka::bindings::rd_kafka_oauthbearer_set_token;
use rdkafka::client::{Client, OAuthToken};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, ClientContext};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::error::Loss;

/// A token of OAuth 2, as a callback given to [`Options::sasl_oauthbearer`](crate::Options::sasl_oauthbearer) returns it.
///
/// ```no_run
/// # use std::time::{Duration, SystemTime};
/// # use idem_core::BoxError;
/// # use idem_kafka::{Kafka, Token};
/// # async fn fetch() -> Result<String, BoxError> { Ok(String::new()) }
/// let options = Kafka::options("kafka:9093").tls().sasl_oauthbearer(|| async {
///     let token = fetch().await?;
///     Ok(Token::new(token, "billing", SystemTime::now() + Duration::from_secs(3600)))
/// });
/// ```
#[derive(Clone)]
pub struct Token {
    token: String,
    principal: String,
    expires: SystemTime,
}

impl Token {
    /// The token, for whom it is, and when it expires. A new one is asked for when four fifths of the time until then have
    /// passed. Most brokers read for whom it is from the token itself; those of MSK take any text here.
    pub fn new(token: impl Into<String>, principal: impl Into<String>, expires: SystemTime) -> Self {
        Self { token: token.into(), principal: principal.into(), expires }
    }

    fn given(self) -> OAuthToken {
        let lifetime = self.expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let lifetime_ms = i64::try_from(lifetime).unwrap_or(i64::MAX);
        OAuthToken { token: self.token, principal_name: self.principal, lifetime_ms }
    }
}

/// Shows no token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("principal", &self.principal)
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// A user and a password, as a callback given to [`Options::sasl_credentials`](crate::Options::sasl_credentials) returns
/// them.
///
/// ```no_run
/// # use idem_core::BoxError;
/// # use idem_kafka::{Credentials, Kafka};
/// # async fn password() -> Result<String, BoxError> { Ok(String::new()) }
/// let options = Kafka::options("kafka:9093")
///     .tls()
///     .sasl_credentials(|| async { Ok(Credentials::new("billing", password().await?)) });
/// ```
pub struct Credentials {
    user: String,
    password: String,
}

impl Credentials {
    /// For SASL PLAIN and SCRAM.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

/// Shows no password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// A callback of the user that returns fresh credentials.
pub(crate) struct Getter<T>(Arc<dyn Fn() -> Getting<T> + Send + Sync>);

type Getting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

impl<T> Clone for Getter<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> Getter<T> {
    pub(crate) fn new<F, A>(get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<T, BoxError>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(get())))
    }

    async fn get(&self) -> Result<T, BoxError> {
        timeout(PATIENCE, (self.0)()).await.unwrap_or_else(|_| Err("there was no answer within 10 seconds".into()))
    }
}

/// How long a callback may take. The group does not wait meanwhile, but nothing is received.
const PATIENCE: Duration = Duration::from_secs(10);

/// How the brokers are logged in to, where that is not a part of the settings.
#[derive(Clone)]
pub(crate) enum Login {
    Credentials(Getter<Credentials>),
    Token(Getter<Token>),
}

impl Login {
    /// Puts what is had now into the settings of clients that are to be made.
    pub(crate) async fn configure(&self, client: &mut ClientConfig) -> Result<(), BoxError> {
        if let Self::Credentials(getter) = self {
            let Credentials { user, password } = getter.get().await?;
            if user.contains('\0') || password.contains('\0') {
                return Err("a user or a password holds NUL".into());
            }
            client.set("sasl.username", user).set("sasl.password", password);
        }
        Ok(())
    }
}

/// Where the tokens of the clients of one subscription come from.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Option<Arc<Source>>);

struct Source {
    getter: Getter<Token>,
    runtime: Handle,
    /// The last one, and until when it is given to further clients. That ends before librdkafka asks for the next.
    last: Mutex<Option<(Token, SystemTime)>>,
}

impl Tokens {
    /// Within the runtime that is to ask.
    pub(crate) fn of(login: Option<&Login>) -> Self {
        match login {
            Some(Login::Token(getter)) => {
                let (getter, runtime) = (getter.clone(), Handle::current());
                Self(Some(Arc::new(Source { getter, runtime, last: Mutex::new(None) })))
            }
            _ => Self(None),
        }
    }

    /// A token, for a thread that may wait.
    pub(crate) fn token(&self) -> Result<OAuthToken, BoxError> {
        let source = self.0.as_ref().ok_or("say .sasl_oauthbearer(..) to log in by OAUTHBEARER")?;
        let mut last = source.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        if let Some((token, until)) = &*last
            && now < *until
        {
            return Ok(token.clone().given());
        }
        let ((send, receive), getter) = (sync_channel(1), source.getter.clone());
        // As a task, since a runtime that is shutting down drops it, where it would panic if it was blocked on.
        source.runtime.spawn(async move { send.send(getter.get().await) });
        let token = receive
            .recv_timeout(PATIENCE * 2)
            .map_err(|_| "the runtime in which the worker was started does not run")??;
        if token.token.contains('\0') || token.principal.contains('\0') {
            return Err("a token holds NUL".into());
        }
        let until = now + token.expires.duration_since(now).unwrap_or_default() / 2;
        *last = Some((token.clone(), until));
        Ok(token.given())
    }

    /// Gives a client its first token, before it is asked for anything. Later ones are had where it is polled.
    pub(crate) fn begin<C: ClientContext>(&self, client: &Client<C>, place: &str) -> Result<(), Loss> {
        if self.0.is_none() {
            return Ok(());
        }
        let failed = |error: String| Loss::Broker(not_had(place), error);
        let OAuthToken { token, principal_name, lifetime_ms } =
            self.token().map_err(|error| failed(error.to_string()))?;
        let (Ok(token), Ok(principal)) = (CString::new(token), CString::new(principal_name)) else {
            return Err(failed("a token holds NUL".to_owned()));
        };
        let mut said = [0; 512];
        // SAFETY: the client lives as long as it is borrowed; both texts end with NUL and are copied; there are no
        // extensions; what is said is as long as it is told to be. None of them is kept.
        let set = unsafe {
            rd_kafka_oauthbearer_set_token(
                client.native_ptr(),
                token.as_ptr(),
                lifetime_ms,
                principal.as_ptr(),
                std::ptr::null_mut(),
                0,
                said.as_mut_ptr(),
                said.len(),
            )
        };
        match set {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
            // Its words may hold the token.
            code => Err(failed(format!(
                "librdkafka does not take the token ({code:?}): it must not have expired, and consists of printable ASCII"
            ))),
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// The error text for a callback of the user that has failed.
pub(crate) fn not_had(place: &str) -> String {
    format!(
        "cannot log in to Kafka at {place}: the callback given to .sasl_oauthbearer(..) or .sasl_credentials(..) has failed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_shows_a_secret() {
        let token = Token::new("s3ntinel", "billing", SystemTime::UNIX_EPOCH);
        let shown = format!("{token:?} {:?}", Credentials::new("billing", "s3ntinel"));
        assert!(!shown.contains("s3ntinel") && shown.contains("billing"), "{shown}");
    }
}
