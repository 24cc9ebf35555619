//! The configuration for connections.

use std::fmt;
use std::time::Duration;

use lapin::tcp::RustlsConnector;
use lapin::uri::AMQPUri;

use crate::address::{Address, First};
use crate::credentials::Login;

/// The configuration for connections to a server.
pub(crate) struct Config {
    /// A template: each connection sets its host and login.
    pub(crate) uri: AMQPUri,
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) first: First,
    pub(crate) tls: Option<RustlsConnector>,
    pub(crate) consumer_timeout: Duration,
    pub(crate) replay_window: Option<Duration>,
    pub(crate) limit_by_policy: bool,
}

/// `AMQPUri` shows its password, so it is omitted.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("address", &format_args!("{}", self.address)).finish_non_exhaustive()
    }
}
