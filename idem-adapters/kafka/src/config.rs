//! The configuration from which clients are created.

use std::fmt;

use idem_core::Error;
use rdkafka::ClientConfig;

use crate::credentials::{Login, Tokens, not_had};

/// How to connect to the brokers.
#[derive(Clone)]
pub(crate) struct Config {
    /// The addresses of the brokers. It holds no secret.
    pub(crate) place: String,
    pub(crate) client: ClientConfig,
    pub(crate) login: Option<Login>,
    /// For clients created from this configuration.
    pub(crate) tokens: Tokens,
}

impl Config {
    /// Returns this configuration with the current login.
    pub(crate) async fn current(&self) -> Result<Self, Error> {
        let mut current = Self { tokens: Tokens::of(self.login.as_ref()), ..self.clone() };
        if let Some(login) = &self.login {
            let had = login.configure(&mut current.client).await;
            had.map_err(|source| Error::broker(not_had(&self.place), source))?;
        }
        Ok(current)
    }
}

/// Shows only the addresses, because rdkafka's own list of secrets is not complete.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("brokers", &self.place).finish_non_exhaustive()
    }
}
