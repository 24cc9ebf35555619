//! What the tests share.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use idem_conformance::server;
use idem_core::Key;
use idem_core::key_value::{Id, KeyValue};
use idem_redis::Redis;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;

/// A server, and a connection of a client to it.
pub(crate) struct World {
    pub(crate) redis: KeyValue<Redis>,
    pub(crate) client: MultiplexedConnection,
}

pub(crate) async fn world() -> Option<World> {
    let url = server("REDIS_URL")?;
    let client = redis::Client::open(&*url).unwrap().get_multiplexed_async_connection().await.unwrap();
    Some(World { redis: Redis::connect(&url).await.unwrap(), client })
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", uuid::Uuid::new_v4().simple())
}

/// The id of a message of a consumer that no other test has.
pub(crate) fn id() -> Id {
    Id { consumer: Arc::from(unique("c")), handler: "reserve".into(), key: Key::of("e-1").unwrap(), apart: None }
}

/// The key of its record.
pub(crate) fn record(id: &Id) -> Vec<u8> {
    [b"idem:", &id.name()[..]].concat()
}

/// A server of its own, with its data on disk.
pub(crate) struct Server {
    home: TempDir,
    pub(crate) port: u16,
    child: Option<Child>,
}

impl Server {
    /// Starts one, and waits until it answers. `None` where there are no servers for tests.
    pub(crate) async fn run() -> Option<Self> {
        server("REDIS_URL")?;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut started = Self { home: TempDir::new().unwrap(), port, child: None };
        started.start(&[]);
        started.answers().await;
        Some(started)
    }

    /// Starts it again with these arguments, and waits until it answers.
    pub(crate) async fn restart(&mut self, arguments: &[&str]) {
        self.kill();
        self.start(arguments);
        self.answers().await;
    }

    async fn answers(&self) {
        let client = redis::Client::open(self.url()).unwrap();
        idem_conformance::until(async || client.get_multiplexed_async_connection().await.is_ok()).await;
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn url_with(&self, password: &str) -> String {
        format!("redis://:{password}@127.0.0.1:{}", self.port)
    }

    pub(crate) fn start(&mut self, arguments: &[&str]) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--port", &self.port.to_string()]).args(arguments).current_dir(self.home.path());
        self.child = Some(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }

    /// By SIGKILL.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Does what an operator does with this password, which may be empty.
    pub(crate) async fn operate(&self, password: &str, command: &[&str]) {
        let url = if password.is_empty() { self.url() } else { self.url_with(password) };
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let (name, arguments) = command.split_first().unwrap();
        let _: redis::Value = redis::cmd(name).arg(arguments).query_async(&mut connection).await.unwrap();
    }

    /// Sets a setting.
    pub(crate) async fn set(&self, name: &str, value: &str) {
        self.operate("", &["CONFIG", "SET", name, value]).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}
