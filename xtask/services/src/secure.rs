//! RabbitMQ with logins by client certificate.

use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::place;
use crate::rabbitmq::{RabbitMq, seen_from, system_of};
use crate::server::Server;

/// The TLS configuration of a server, as PEM.
#[derive(Debug, Clone, Copy)]
pub struct Secure<'a> {
    /// The authority of the client certificates.
    pub authority: &'a str,
    /// The server's certificate.
    pub certificate: &'a str,
    /// The key of the server's certificate.
    pub key: &'a str,
    /// The only user, which is the common name of the client certificate.
    pub user: &'a str,
}

/// The server for one start.
pub(crate) struct SecureRabbitMq<'a> {
    pub(crate) secure: Secure<'a>,
    pub(crate) tls_port: u16,
}

impl Server for SecureRabbitMq<'_> {
    fn name(&self) -> &'static str {
        RabbitMq.name()
    }

    fn variable(&self) -> &'static str {
        RabbitMq.variable()
    }

    fn url(&self, _port: u16) -> String {
        format!("amqps://localhost:{}/%2f", self.tls_port)
    }

    fn packages(&self) -> &'static [&'static str] {
        RabbitMq.packages()
    }

    fn is_installed(&self) -> bool {
        RabbitMq.is_installed()
    }

    fn chosen(&self) -> Option<PathBuf> {
        RabbitMq.chosen()
    }

    fn root(&self) -> Option<PathBuf> {
        RabbitMq.root()
    }

    fn create(&self, home: &Path, port: u16) -> Result<()> {
        RabbitMq.create(home, port)?;
        let Secure { authority, certificate, key, user } = self.secure;
        place::write(&home.join("authority.pem"), authority)?;
        place::write(&home.join("certificate.pem"), certificate)?;
        place::write(&home.join("key.pem"), key)?;
        place::write(&home.join("plugins"), "[rabbitmq_auth_mechanism_ssl].\n")?;
        let data = system_of(home).map_or_else(|| home.to_owned(), |system| seen_from(&system, home));
        let (data, port) = (data.display(), self.tls_port);
        let config = format!(
            "default_user = {user}\n\
             disk_free_limit.absolute = 50MB\n\
             listeners.ssl.1 = 127.0.0.1:{port}\n\
             ssl_options.cacertfile = {data}/authority.pem\n\
             ssl_options.certfile = {data}/certificate.pem\n\
             ssl_options.keyfile = {data}/key.pem\n\
             ssl_options.verify = verify_peer\n\
             ssl_options.fail_if_no_peer_cert = true\n\
             auth_mechanisms.1 = EXTERNAL\n\
             ssl_cert_login_from = common_name\n"
        );
        place::write(&home.join("rabbitmq.conf"), &config)
    }

    fn launch(&self, home: &Path, port: u16) -> Result<()> {
        RabbitMq.launch(home, port)
    }

    fn processes(&self, home: &Path) -> Vec<i32> {
        RabbitMq.processes(home)
    }

    fn shutdown(&self) -> Signal {
        RabbitMq.shutdown()
    }
}
