//! RabbitMQ, also with logins by client certificate.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{Instance, place, process};

/// RabbitMQ: user and password `guest`, virtual host `/`, listening on the loopback address only.
///
/// Each instance is a separate cluster, with its own node name, ports, cookie and port mapper (epmd), so that any
/// number of instances can run next to each other and next to an installed server.
///
/// If `IDEM_RABBITMQ_ROOT` is set, it is the root directory of another Debian system that contains RabbitMQ, which is
/// run instead of the installed one. This requires root. On Debian, this command creates such a system with RabbitMQ 4:
/// `debootstrap --variant=minbase --include=rabbitmq-server trixie DIRECTORY`
#[derive(Debug, Clone, Copy)]
pub struct RabbitMq;

/// Debian's path of the script that runs as the calling user; the one in `PATH` changes the user.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Debian's path of Erlang's port mapper.
const EPMD: &str = "/usr/bin/epmd";

impl RabbitMq {
    /// Starts a private instance. Fails if RabbitMQ is not installed, or does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

pub(crate) const SERVER: Server = Server {
    name: "rabbitmq",
    variable: "AMQP_URL",
    url: |port| format!("amqp://guest:guest@127.0.0.1:{port}/%2f"),
    packages: &["rabbitmq-server"],
    choice: "IDEM_RABBITMQ_ROOT",
    is_installed: || root().is_some() || (script().is_some() && epmd().is_some()),
    create,
    launch,
    pids: &["pid", "epmd.pid"],
    shutdown: Signal::SIGTERM,
};

/// Returns the root of the system that contains its programs, if it is not this one. The data of its instances is there.
pub(crate) fn root() -> Option<PathBuf> {
    SERVER.chosen()
}

fn create(home: &Path, _port: u16) -> Result<()> {
    place::write(&home.join("plugins"), "[].\n")?;
    // A stopped instance must return to its ports, so they are part of its data.
    place::write(&home.join("ports"), &format!("{} {}", place::free_port()?, place::free_port()?))?;
    // As RabbitMQ 4 has it by default; before, it is 128 MiB, which is too much for a test of the limit.
    let limit = "max_message_size = 16777216\n";
    let others = "loopback_users.guest = true\ndisk_free_limit.absolute = 50MB\n";
    place::write(&home.join("rabbitmq.conf"), &format!("{others}{limit}"))
}

fn launch(home: &Path, port: u16) -> Result<()> {
    let ports = fs::read_to_string(home.join("ports")).context("cannot read the ports of RabbitMQ")?;
    let (mapper, node) = ports.split_once(' ').context("the ports of RabbitMQ are damaged")?;
    let _ = fs::remove_file(home.join("pid"));

    let system = system_of(home);
    let mut epmd = match &system {
        Some(system) => within(system, home, EPMD)?,
        None => as_servant(epmd().context("epmd, a program of Erlang, is not installed")?, home)?,
    };
    epmd.args(["-address", "127.0.0.1", "-port", mapper]);
    let epmd = process::detach(&mut epmd, home, "epmd.log")?;
    place::write(&home.join("epmd.pid"), &epmd.to_string())?;

    let mut server = match &system {
        Some(system) => within(system, home, SCRIPT)?,
        None => as_servant(script().context("RabbitMQ is not installed")?, home)?,
    };
    // The path of the data as the server sees it.
    let data = system.as_ref().map_or_else(|| home.to_owned(), |system| seen_from(system, home));
    server
        .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
        .env("RABBITMQ_NODENAME", format!("idem{port}@localhost"))
        .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODE_PORT", port.to_string())
        .env("RABBITMQ_DIST_PORT", node)
        .env("RABBITMQ_MNESIA_BASE", data.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", data.join("logs"))
        .env("RABBITMQ_PID_FILE", data.join("pid"))
        .env("RABBITMQ_CONFIG_FILE", data.join("rabbitmq.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", data.join("plugins"))
        .env("ERL_EPMD_PORT", mapper)
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        // The script then execs the server instead of remaining as its parent process.
        .env("RUNNING_UNDER_SYSTEMD", "true")
        // Without busy waiting: the schedulers would take CPU time from the tests.
        .env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "+sbwt none +sbwtdcpu none +sbwtdio none -kernel inet_dist_use_interface {127,0,0,1}",
        );
    process::launch("RabbitMQ", &mut server, home, || {
        // The first eight bytes of AMQP 0-9-1 are answered by a method frame, `connection.start`.
        process::answers(port, b"AMQP\x00\x00\x09\x01", &[1])
    })
}

fn as_servant(program: PathBuf, home: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    place::as_servant(&mut command, home)?;
    Ok(command)
}

/// Returns the other system in which this instance was created, if any.
fn system_of(home: &Path) -> Option<PathBuf> {
    let system = home.ancestors().nth(3)?;
    (system != Path::new("/") && system.join(EPMD.trim_start_matches('/')).is_file()).then(|| system.to_owned())
}

/// Returns a path as a program inside the other system sees it.
fn seen_from(system: &Path, path: &Path) -> PathBuf {
    Path::new("/").join(path.strip_prefix(system).unwrap_or(path))
}

/// Returns the command for a program of another system, run in `home`, which is inside that system.
fn within(system: &Path, home: &Path, program: &str) -> Result<Command> {
    let mut command = Command::new("chroot");
    if let Some(user) = place::servant()? {
        command.arg(format!("--userspec={}:{}", user.uid, user.gid));
    }
    // `chroot` starts in the root directory, but processes are identified by their working directory.
    let at_home = r#"cd "$0" && export HOME="$0" && exec "$@""#;
    command.arg(system).args(["/bin/sh", "-c", at_home]).arg(seen_from(system, home)).arg(program);
    Ok(command)
}

fn script() -> Option<PathBuf> {
    let debian = PathBuf::from(SCRIPT);
    if debian.is_file() { Some(debian) } else { process::which("rabbitmq-server", &[]) }
}

fn epmd() -> Option<PathBuf> {
    process::which("epmd", &["/usr/lib/erlang/bin"])
}

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
