//! A daemon that watches a group, and what it answers.

use std::fs;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::churn::Ended;

/// How long a daemon may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon with the group `a`. It is killed when this is dropped.
pub struct Served {
    isotherm: PathBuf,
    directory: TempDir,
    daemon: Ended,
}

/// Sampling rounds of the group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rounds {
    /// All of them.
    pub all: f64,
    /// Those that began late.
    pub late: f64,
}

impl Rounds {
    /// The rounds since earlier ones.
    pub fn since(self, before: Self) -> Self {
        Self { all: self.all - before.all, late: self.late - before.late }
    }

    /// The share that was late.
    pub fn late_share(self) -> f64 {
        self.late / self.all.max(1.0)
    }
}

impl Served {
    /// Starts a daemon that watches what `select` says, in YAML, and waits until it has a snapshot.
    ///
    /// # Errors
    /// If it cannot be started, or has no snapshot in a minute.
    pub fn start(isotherm: &Path, select: &str) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let at = |name: &str| directory.path().join(name).display().to_string();
        let config = format!(
            "socket: {}\nhistory: {{directory: {}}}\ngroups:\n  - {{name: a, select: {select}}}\n",
            at("api.sock"),
            at("state")
        );
        fs::write(directory.path().join("isotherm.yaml"), config)?;
        let daemon = spawn(isotherm, directory.path())?;
        let mut served = Self { isotherm: isotherm.into(), directory, daemon };
        served.wait()?;
        Ok(served)
    }

    /// Kills the daemon (`kill -9`) and starts it again. Waits until there is a snapshot.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn kill(&mut self) -> io::Result<()> {
        self.daemon.0.kill()?;
        self.daemon.0.wait()?;
        self.daemon = spawn(&self.isotherm, self.directory.path())?;
        self.wait()
    }

    fn wait(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while self.ask("/v1/groups/a/snapshot").is_none_or(|(status, _)| status != 200) {
            if let Some(status) = self.daemon.0.try_wait()? {
                return Err(io::Error::other(format!("the daemon has ended: {status}; {}", self.log())));
            }
            if begun.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("the daemon has no snapshot; {}", self.log())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The process ID of the daemon.
    pub fn pid(&self) -> u32 {
        self.daemon.0.id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("api.sock")
    }

    /// The recordings of the history of the group.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn history(&self) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.directory.path().join("state/history/a"))?;
        let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
        Ok(paths?.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rec")).collect())
    }

    /// The status and the body of the answer to a GET request. `None` if there is none.
    pub fn ask(&self, path: &str) -> Option<(u16, Vec<u8>)> {
        ask(&self.socket(), path).ok()
    }

    /// The sampling rounds so far, by the metrics, which the daemon takes every 5 s.
    pub fn rounds(&self) -> Rounds {
        let metrics = self.ask("/metrics").map(|(_, body)| String::from_utf8_lossy(&body).into_owned());
        let metrics = metrics.unwrap_or_default();
        let sum = |name: &str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(&format!("{name}{{group=\"a\"}} ")));
            line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
        };
        Rounds { all: sum("isotherm_rounds_total"), late: sum("isotherm_late_rounds_total") }
    }
}

fn spawn(isotherm: &Path, directory: &Path) -> io::Result<Ended> {
    let log = fs::OpenOptions::new().create(true).append(true).open(directory.join("log"))?;
    let mut command = Command::new(isotherm);
    command.args(["daemon", "--config"]).arg(directory.join("isotherm.yaml"));
    Ok(Ended(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?))
}

/// Asks once, by a connection of its own.
pub(super) fn ask(socket: &Path, path: &str) -> io::Result<(u16, Vec<u8>)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let _ = stream.shutdown(Shutdown::Both);
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok((status, answer.split_off(end + 4)))
}
