//! Credentials that a callback returns for each connection.

use std::fmt;
use std::sync::Arc;

use async_nats::{AuthError, ConnectOptions};
use idem_core::Error;
use nkeys::{KeyPair, KeyPairType};

/// The credentials of a login, as returned by the callback given to
/// [`Options::credentials`](crate::Options::credentials).
///
/// ```no_run
/// # use idem_core::BoxError;
/// # use idem_nats::{Credentials, Nats};
/// # async fn token() -> Result<String, BoxError> { Ok(String::new()) }
/// let options = Nats::options("tls://nats:4222").credentials(|| async { Ok(Credentials::token(token().await?)) });
/// ```
#[derive(Clone)]
pub struct Credentials(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Token(String),
    Password(String, String),
    Nkey(String),
    Jwt(String, String),
}

impl Credentials {
    /// Logs in with a token.
    pub fn token(token: impl Into<String>) -> Self {
        Self(Kind::Token(token.into()))
    }

    /// Logs in with a user and a password. Servers with an auth callout also accept tokens of other systems this way.
    pub fn password(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self(Kind::Password(user.into(), password.into()))
    }

    /// Logs in with the nkey of this seed, which begins with `SU`.
    pub fn nkey(seed: impl Into<String>) -> Self {
        Self(Kind::Nkey(seed.into()))
    }

    /// Logs in with a user's JWT and the seed of its nkey.
    ///
    /// ```no_run
    /// # use idem_core::BoxError;
    /// # use idem_nats::{Credentials, Nats};
    /// # async fn issued() -> Result<(String, String), BoxError> { Ok((String::new(), String::new())) }
    /// // The issuing service returns a JWT that is valid for an hour, and its seed.
    /// let options = Nats::options("tls://nats:4222").credentials(|| async {
    ///     let (jwt, seed) = issued().await?;
    ///     Ok(Credentials::jwt(jwt, seed))
    /// });
    /// ```
    pub fn jwt(jwt: impl Into<String>, seed: impl Into<String>) -> Self {
        Self(Kind::Jwt(jwt.into(), seed.into()))
    }

    pub(crate) fn give(self, options: ConnectOptions) -> Result<ConnectOptions, Error> {
        Ok(match self.0 {
            Kind::Token(token) => options.token(token),
            Kind::Password(user, password) => options.user_and_password(user, password),
            Kind::Nkey(seed) => {
                user(&seed)?;
                options.nkey(seed)
            }
            Kind::Jwt(jwt, seed) => {
                let pair = Arc::new(user(&seed)?);
                options.jwt(jwt, move |nonce| {
                    let pair = Arc::clone(&pair);
                    async move { pair.sign(&nonce).map_err(AuthError::new) }
                })
            }
        })
    }
}

/// Parses the seed of a user's nkey. The parser's errors are not passed on, because they may contain the seed.
pub(crate) fn user(seed: &str) -> Result<KeyPair, Error> {
    KeyPair::from_seed(seed).ok().filter(|pair| pair.key_pair_type() == KeyPairType::User).ok_or_else(|| {
        Error::Config(
            "the seed of an nkey is not that of a user: give the text that begins with SU to .nkey, \
             Credentials::nkey or Credentials::jwt (nk -gen user)"
                .to_owned(),
        )
    })
}

/// Does not show secrets.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}
