//! Starts a private instance of each kind of server.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::secure::{Secure, SecureRabbitMq};
use crate::server::Server;
use crate::{Instance, Kafka, Nats, Postgres, RabbitMq, place, process};

impl Postgres {
    /// Starts a private instance, which a test may stop, kill and pause. It ends when the value is dropped or the
    /// process ends.
    ///
    /// # Errors
    /// No instance can be started on this machine, or it does not respond within a minute.
    pub fn start() -> Result<Instance> {
        Instance::start(&Self)
    }
}

impl RabbitMq {
    /// Starts a private instance, which a test may stop, kill and pause. It ends when the value is dropped or the
    /// process ends.
    ///
    /// # Errors
    /// No instance can be started on this machine, or it does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&Self)
    }

    /// Starts an instance that listens with TLS and accepts only logins by client certificate (SASL EXTERNAL). Its
    /// address names `localhost`, and no user.
    ///
    /// # Errors
    /// RabbitMQ is not installed on this machine, or does not respond within two minutes.
    pub fn start_secure(secure: Secure<'_>) -> Result<Instance> {
        let server = SecureRabbitMq { secure, tls_port: place::free_port()? };
        ensure!(server.is_installed(), "RabbitMQ is not installed: install {}", server.packages().join(" "));
        let instance = Instance::start(&server)?;
        // It listens on this port later than on the first one.
        let port = SocketAddr::from((Ipv4Addr::LOCALHOST, server.tls_port));
        process::wait_until("the start of RabbitMQ's listener for TLS", Duration::from_secs(60), || {
            Ok(TcpStream::connect_timeout(&port, Duration::from_secs(1)).is_ok())
        })?;
        Ok(instance)
    }
}

impl Nats {
    /// Starts a private instance, which a test may stop, kill and pause. It ends when the value is dropped or the
    /// process ends.
    ///
    /// # Errors
    /// No instance can be started on this machine, or it does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&Self)
    }
}

impl Kafka {
    /// Starts a private instance, which a test may stop, kill and pause. It ends when the value is dropped or the
    /// process ends. Its [`url`](Instance::url) is `host:port`.
    ///
    /// # Errors
    /// No instance can be started on this machine, or it does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&Self)
    }
}
