//! A server for one test: with a configuration that the shared server lacks, or to be stopped and killed.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::LONG;

/// A server process, which ends when the value is dropped.
pub(crate) struct Server {
    program: PathBuf,
    pub(crate) home: TempDir,
    pub(crate) port: u16,
    child: Child,
}

impl Server {
    /// Starts a server with this configuration. Returns `None` if there is no program to start or no server to test
    /// against. `$home` in the configuration is the server's directory.
    pub(crate) fn start(config: &str) -> Option<Self> {
        super::url()?;
        let Some(program) = program() else {
            assert!(std::env::var_os("CI").is_none(), "there is no nats-server");
            println!("skipped: there is no nats-server to start, install it or set IDEM_NATS_SERVER");
            return None;
        };
        let home = TempDir::new().unwrap();
        Some(Self::start_in(program, home, config))
    }

    /// Starts a server with these files in its directory.
    pub(crate) fn start_with(config: &str, files: &[(&str, &str)]) -> Option<Self> {
        super::url()?;
        let home = TempDir::new().unwrap();
        for (name, content) in files {
            std::fs::write(home.path().join(name), content).unwrap();
        }
        Some(Self::start_in(program()?, home, config))
    }

    fn start_in(program: PathBuf, home: TempDir, config: &str) -> Self {
        let path = home.path().to_str().unwrap();
        std::fs::write(home.path().join("nats.conf"), config.replace("$home", path)).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = launch(&program, &home, port);
        Self { program, home, port, child }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Sends SIGKILL, or SIGTERM if `gently`, and waits for the end.
    pub(crate) fn stop(&mut self, gently: bool) {
        let signal = if gently { "-TERM" } else { "-KILL" };
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// Starts the server again, on the same port and with its data.
    pub(crate) fn again(&mut self) {
        self.child = launch(&self.program, &self.home, self.port);
    }
}

fn launch(program: &PathBuf, home: &TempDir, port: u16) -> Child {
    let mut child = Command::new(program)
        .args(["-c", "nats.conf", "-sd", "data", "-a", "127.0.0.1", "-p", &port.to_string(), "-l", "log"])
        .current_dir(home)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(home.path().join("errors")).unwrap())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while !greets(port) {
        let said = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap_or_default();
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() && begin.elapsed() < LONG, "nats-server: {} {}", said("log"), said("errors"));
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

fn greets(port: u16) -> bool {
    let mut greeting = [0; 4];
    let connected = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1));
    connected.is_ok_and(|mut server| server.read_exact(&mut greeting).is_ok() && greeting == *b"INFO")
}

fn program() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("IDEM_NATS_SERVER").filter(|path| !path.is_empty()) {
        return Some(chosen.into());
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs it in a directory that is not in a user's PATH.
    let directories = std::env::split_paths(&paths).chain(["/usr/sbin".into()]);
    directories.map(|directory| directory.join("nats-server")).find(|path| path.is_file())
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
