//! A program with USDT probes.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A process of the program `marker`, which executes USDT probes at command. It is killed when the value is dropped.
#[derive(Debug)]
pub struct Marker {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Marker {
    /// Compiles the program `marker` and its library `libmarker.so` into a directory. Returns the paths of both.
    ///
    /// # Errors
    /// Why there is no C compiler.
    pub fn compile(directory: &Path) -> Result<(PathBuf, PathBuf), String> {
        let source = directory.join("marker.c");
        std::fs::write(&source, include_str!("marker.c")).unwrap();
        let (program, library) = (directory.join("marker"), directory.join("libmarker.so"));
        let kinds: [(&Path, &[&str]); 2] = [(&program, &[]), (&library, &["-shared", "-fPIC", "-DLIBRARY"])];
        for (output, options) in kinds {
            let mut compiler = Command::new("cc");
            compiler.arg("-O2").args(options).arg("-o").arg(output).arg(&source).arg("-ldl");
            let status = compiler.status().map_err(|error| format!("there is no C compiler (cc): {error}"))?;
            assert!(status.success(), "marker.c is not compiled");
        }
        Ok((program, library))
    }

    /// Starts the program.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(program: &Path) -> Self {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, commands, answers }
    }

    /// The process ID.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command, such as `mark TEXT`, and waits until it is done. Returns how many watch the probe `demo:tick`.
    ///
    /// # Panics
    /// When the process has ended.
    pub fn request(&mut self, command: &str) -> u32 {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim_end().parse().unwrap()
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
