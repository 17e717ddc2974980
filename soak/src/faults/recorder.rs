//! A recorder of a target of its own, which other commands can reach.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::target::{Start, Target};

/// How often, and at which intervals, a new recorder is asked whether it listens.
const TRIES: u32 = 300;
const INTERVAL: Duration = Duration::from_millis(100);

/// A recorder that runs. It is killed when this is dropped.
#[derive(Debug)]
pub struct Recorder {
    child: Child,
    directory: tempfile::TempDir,
    _target: Target,
}

impl Recorder {
    /// Starts a recorder, and waits until it takes marks.
    ///
    /// # Errors
    /// If it cannot be started, or takes no marks.
    pub fn start(isotherm: &Path, target: &Start) -> io::Result<Self> {
        let (directory, target) = (tempfile::tempdir()?, target.target()?);
        let silent = |arguments: &[&str]| {
            let mut command = Command::new(isotherm);
            command.args(arguments).current_dir(directory.path());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let pid = target.pid().to_string();
        let child = silent(&["record", "-q", "--probe", "refs", "-o", "marked.rec", "--pid", &pid]).spawn()?;
        let mut ask = silent(&["mark", "here", "--recording", "marked.rec"]);
        let mut recorder = Self { child, directory, _target: target };
        for _ in 0..TRIES {
            if ask.status()?.success() {
                return Ok(recorder);
            }
            if let Some(status) = recorder.child.try_wait()? {
                return Err(io::Error::other(format!("the recorder for marks has ended: {status}")));
            }
            thread::sleep(INTERVAL);
        }
        Err(io::Error::other("the recorder takes no marks"))
    }

    /// Its recording.
    pub fn recording(&self) -> PathBuf {
        self.directory.path().join("marked.rec")
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
