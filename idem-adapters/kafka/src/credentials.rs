//! Logins that change: OAuth tokens, and passwords from a callback.
#![expect(unsafe_code, reason = "rdkafka gives tokens only to a client that is polled, which one that asks is not")]

use std::ffi::CString;
use std::fmt;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use idem_core::{BoxError, Callback};
use rdkafka::bindings::rd_kafka_oauthbearer_set_token;
use rdkafka::client::{Client, OAuthToken};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, ClientContext};
use tokio::runtime::Handle;

use crate::error::Loss;

/// An OAuth 2 token, as returned by the callback given to
/// [`Options::sasl_oauthbearer`](crate::Options::sasl_oauthbearer).
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
    /// Creates a token from its text, its principal and its expiry time. The callback is called for a new one after
    /// four fifths of the remaining lifetime. Most brokers read the principal from the token itself; Amazon MSK accepts
    /// any text here.
    pub fn new(token: impl Into<String>, principal: impl Into<String>, expires: SystemTime) -> Self {
        Self { token: token.into(), principal: principal.into(), expires }
    }

    fn given(self) -> OAuthToken {
        let lifetime = self.expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
        let lifetime_ms = i64::try_from(lifetime).unwrap_or(i64::MAX);
        OAuthToken { token: self.token, principal_name: self.principal, lifetime_ms }
    }
}

/// Does not show the token.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// A user name and a password, as returned by the callback given to
/// [`Options::sasl_credentials`](crate::Options::sasl_credentials).
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
    /// Creates credentials for SASL PLAIN or SCRAM.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self { user: user.into(), password: password.into() }
    }
}

/// Does not show the password.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// How long a token is waited for: longer than its callback may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A login. That of a callback is not part of the static settings.
#[derive(Clone)]
pub(crate) enum Login {
    Plain(String, String),
    Credentials(Callback<Credentials>),
    Token(Callback<Token>),
}

impl Login {
    /// Puts the current credentials into the settings of new clients.
    pub(crate) async fn configure(&self, client: &mut ClientConfig) -> Result<(), BoxError> {
        if let Self::Credentials(callback) = self {
            let Credentials { user, password } = callback.call().await?;
            if user.contains('\0') || password.contains('\0') {
                return Err("a user or a password holds NUL".into());
            }
            client.set("sasl.username", user).set("sasl.password", password);
        }
        Ok(())
    }
}

/// The source of tokens for the clients of one subscription.
#[derive(Clone, Default)]
pub(crate) struct Tokens(Option<Arc<Source>>);

struct Source {
    callback: Callback<Token>,
    runtime: Handle,
    /// The last token, and the time until which new clients reuse it. That is before librdkafka asks for the next one.
    last: Mutex<Option<(Token, SystemTime)>>,
}

impl Tokens {
    /// Creates the source of this login. Must be called in the runtime that is to run the callback.
    pub(crate) fn of(login: Option<&Login>) -> Self {
        match login {
            Some(Login::Token(callback)) => {
                let (callback, runtime) = (callback.clone(), Handle::current());
                Self(Some(Arc::new(Source { callback, runtime, last: Mutex::new(None) })))
            }
            _ => Self(None),
        }
    }

    /// Returns a token. Blocks the calling thread.
    pub(crate) fn token(&self) -> Result<OAuthToken, BoxError> {
        let source = self.0.as_ref().ok_or("use .sasl_oauthbearer(..) to log in by OAUTHBEARER")?;
        let mut last = source.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now();
        if let Some((token, until)) = &*last
            && now < *until
        {
            return Ok(token.clone().given());
        }
        let ((send, receive), callback) = (sync_channel(1), source.callback.clone());
        // Spawned, because a runtime that is shutting down drops a task, whereas blocking on the future would panic.
        source.runtime.spawn(async move { send.send(callback.call().await) });
        let token = receive
            .recv_timeout(PATIENCE)
            .map_err(|_| "the runtime in which the worker was started does not run")??;
        if token.token.contains('\0') || token.principal.contains('\0') {
            return Err("a token holds NUL".into());
        }
        let until = now + token.expires.duration_since(now).unwrap_or_default() / 2;
        *last = Some((token.clone(), until));
        Ok(token.given())
    }

    /// Gives a client its first token, before its first request. It gets later tokens when it is polled.
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
        // SAFETY: the client outlives the borrow. Both strings end with NUL and are copied. There are no extensions.
        // The buffer for the error text has the given length. librdkafka keeps none of these pointers.
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
            // librdkafka's text may contain the token.
            code => Err(failed(format!(
                "librdkafka does not take the token ({code:?}): it must not have expired, and consists of printable ASCII"
            ))),
        }
    }
}

/// The error text for a failed callback.
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
