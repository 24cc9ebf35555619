//! The configuration of connections.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_nats::ConnectOptions;
use async_nats::rustls::ClientConfig;
use idem_core::{Callback, Error};

use crate::address::Address;
use crate::credentials::Credentials;

/// The credentials of a login.
#[derive(Clone)]
pub(crate) enum Secret {
    /// Read again for each connection, so that the file can be replaced while the worker runs.
    File(PathBuf),
    Given(Credentials),
    /// Called for each connection.
    Got(Callback<Credentials>),
}

/// The settings of connections to the servers.
pub(crate) struct Config {
    pub(crate) address: Address,
    pub(crate) login: Option<Secret>,
    pub(crate) encrypted: bool,
    pub(crate) tls: Option<ClientConfig>,
    pub(crate) inbox_prefix: Option<String>,
    /// The prefix of JetStream's API subjects.
    pub(crate) api: Arc<str>,
}

impl Config {
    /// Returns the options for async-nats.
    pub(crate) async fn options(&self) -> Result<ConnectOptions, Error> {
        let options = ConnectOptions::new().require_tls(self.encrypted);
        let options = match &self.login {
            None => options,
            Some(Secret::Given(credentials)) => credentials.clone().give(options)?,
            Some(Secret::Got(callback)) => {
                let got = callback.call().await.map_err(|error| {
                    let address = &self.address;
                    let what = "the callback given to .credentials(..) has failed";
                    Error::broker(format!("cannot log in to NATS at {address}: {what}"), error)
                });
                got?.give(options)?
            }
            Some(Secret::File(path)) => options.credentials_file(path).await.map_err(|error| {
                Error::Config(format!(
                    "the credentials in {} cannot be read ({}): give the path of a .creds file, which holds a JWT and \
                     a seed",
                    path.display(),
                    error.kind()
                ))
            })?,
        };
        let options = if let Some(tls) = &self.tls { options.tls_client_config(tls.clone()) } else { options };
        Ok(if let Some(prefix) = &self.inbox_prefix { options.custom_inbox_prefix(prefix) } else { options })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("address", &self.address).finish_non_exhaustive()
    }
}
