//! RabbitMQ with logins by client certificate.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::Result;

use crate::rabbitmq::{RabbitMq, SERVER, seen_from, system_of};
use crate::{Instance, place, process};

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

impl RabbitMq {
    /// Starts an instance that listens with TLS and accepts only logins by client certificate (SASL EXTERNAL). Its
    /// address names `localhost`, and no user. Fails if RabbitMQ is not installed, or does not respond within two minutes.
    pub fn start_secure(secure: Secure<'_>) -> Result<Instance> {
        let port = place::free_port()?;
        let url = format!("amqps://localhost:{port}/%2f");
        let instance = Instance::prepared(&SERVER, Some(url), |home| {
            let Secure { authority, certificate, key, user } = secure;
            place::write(&home.join("authority.pem"), authority)?;
            place::write(&home.join("certificate.pem"), certificate)?;
            place::write(&home.join("key.pem"), key)?;
            place::write(&home.join("plugins"), "[rabbitmq_auth_mechanism_ssl].\n")?;
            let data = system_of(home).map_or_else(|| home.to_owned(), |system| seen_from(&system, home));
            let data = data.display();
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
        })?;
        // It listens on this port later than on the first one.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        process::wait_until("the start of RabbitMQ's listener for TLS", Duration::from_secs(60), || {
            Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
        })?;
        Ok(instance)
    }
}
