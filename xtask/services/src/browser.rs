//! Chromium without a window, driven by chromedriver.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use crate::process;

const PROGRAMS: [&str; 2] = ["chromium", "chromedriver"];
/// The packages that contain them, and a font: without one, pictures have no text.
pub(crate) const PACKAGES: [&str; 3] = ["chromium", "chromium-driver", "fonts-dejavu-core"];

/// The driver of a browser, for as long as this value exists. Each session of it is a browser of its own.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    url: String,
    // Kept, so that the driver can write.
    _output: BufReader<ChildStdout>,
}

impl Browser {
    /// Starts the driver on a free port.
    ///
    /// # Errors
    /// Chromium or its driver is not installed; the text names the packages. Or the driver does not start.
    pub fn start() -> Result<Self> {
        ensure!(
            is_installed(),
            "{} are not here. On Debian: apt-get install {}; as root `cargo xtask test` does that by itself",
            PROGRAMS.join(" and "),
            PACKAGES.join(" ")
        );
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().context("cannot run chromedriver")?;
        let mut output = BufReader::new(driver.stdout.take().context("chromedriver has no output")?);
        let port = port(&mut output);
        if port.is_err() {
            let _ = driver.kill();
            let _ = driver.wait();
        }
        Ok(Self { driver, url: format!("http://127.0.0.1:{}", port?), _output: output })
    }

    /// The address of the driver.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Reads the port that the driver has got.
fn port(output: &mut impl BufRead) -> Result<u16> {
    for line in output.lines() {
        let line = line?;
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            return port.trim_end_matches('.').parse().with_context(|| format!("chromedriver says {line:?}"));
        }
    }
    anyhow::bail!("chromedriver ended before it had a port")
}

/// Ends the driver, and the browsers of sessions that a failed test has left open.
impl Drop for Browser {
    fn drop(&mut self) {
        let Ok(pid) = i32::try_from(self.driver.id()) else { return };
        let browsers = process::tree(pid);
        let _ = process::signal(pid, Signal::SIGTERM);
        let _ = process::wait_until("the end of chromedriver", Duration::from_secs(5), || Ok(!process::is_alive(pid)));
        for left in browsers.into_iter().filter(|&left| process::is_alive(left)) {
            let _ = process::signal(left, Signal::SIGKILL);
        }
        let _ = self.driver.wait();
    }
}

pub(crate) fn is_installed() -> bool {
    PROGRAMS.iter().all(|name| process::which(name, &[]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_line_of_success() {
        let said = "Starting ChromeDriver 156.0 (ea19f97) on port 0\nOnly local connections are allowed.\n\
                    ChromeDriver was started successfully on port 35581.\n";
        assert_eq!(port(&mut said.as_bytes()).unwrap(), 35581);
        assert!(port(&mut "on port 0\n".as_bytes()).is_err());
    }
}
