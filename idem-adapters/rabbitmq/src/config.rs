//! The configuration that connections are made from.

use std::fmt;
use std::time::Duration;

use lapin::tcp::RustlsConnector;
use lapin::uri::AMQPUri;

use crate::address::{Address, First};
use crate::credentials::Login;

/// How the server is spoken to.
pub(crate) struct Config {
    /// Each connection has a host and a login of its own in it.
    pub(crate) uri: AMQPUri,
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) first: First,
    pub(crate) tls: Option<RustlsConnector>,
    pub(crate) consumer_timeout: Duration,
    pub(crate) replay_window: Option<Duration>,
    pub(crate) limit_by_policy: bool,
}

/// `AMQPUri` shows its password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &format_args!("{}", self.address))
            .field("consumer_timeout", &self.consumer_timeout)
            .finish_non_exhaustive()
    }
}
