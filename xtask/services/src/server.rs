//! The interface of a kind of server. A new kind is one file that implements [`Server`], and one line
//! in `kinds.rs`.

use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::sys::signal::Signal;

/// A kind of server.
pub(crate) trait Server: Sync {
    /// Returns its name, which is also that of its service in `compose.yaml`.
    fn name(&self) -> &'static str;

    /// Returns the environment variable from which tests read its address.
    fn variable(&self) -> &'static str;

    /// Returns the address of an instance on this port of this machine.
    fn url(&self, port: u16) -> String;

    /// Returns the packages of Debian and Ubuntu that contain its programs.
    fn packages(&self) -> &'static [&'static str];

    /// Returns whether its programs are installed.
    fn is_installed(&self) -> bool;

    /// Returns the program that the environment selects. It takes precedence over Docker and over an instance of
    /// another program.
    fn chosen(&self) -> Option<PathBuf> {
        None
    }

    /// Returns the root of the system that contains its programs, if it is not this system. The data of its instances
    /// is stored there.
    fn root(&self) -> Option<PathBuf> {
        None
    }

    /// Creates the data of a new instance in `home`, an empty directory.
    fn create(&self, home: &Path, port: u16) -> Result<()>;

    /// Starts the instance in `home`, and waits until it responds.
    fn launch(&self, home: &Path, port: u16) -> Result<()>;

    /// Returns the processes that run in `home` according to its files, the main one first. Includes those of a failed
    /// start.
    fn processes(&self, home: &Path) -> Vec<i32>;

    /// Returns the signal for a clean shutdown that does not wait for clients.
    fn shutdown(&self) -> Signal;
}
