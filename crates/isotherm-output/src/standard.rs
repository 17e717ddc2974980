//! Standard output.

use std::io::{self, StdoutLock, Write};
use std::path::Path;

use rustix::fs::fstat;

use crate::options::is_input;
use crate::{OutputError, Refusal};

/// What messages call it.
const NAME: &str = "standard output";

/// The standard output of this process. Its errors say so, and keep their kinds.
#[derive(Debug)]
pub struct StandardOutput(StdoutLock<'static>);

/// Standard output. No other thread can write to it meanwhile.
pub fn standard_output() -> StandardOutput {
    StandardOutput(io::stdout().lock())
}

impl StandardOutput {
    /// Standard output, for a command that reads these files.
    ///
    /// # Errors
    /// If it is one of these files.
    pub fn apart_from<P: AsRef<Path>>(self, inputs: impl IntoIterator<Item = P>) -> Result<Self, OutputError> {
        match fstat(rustix::stdio::stdout()) {
            Ok(output) if is_input(&output, inputs) => Err(OutputError::new(Path::new(NAME), Refusal::Input)),
            _ => Ok(self),
        }
    }

    /// An error of a write to standard output, with a text that says so.
    pub fn name(error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{NAME}: {error}"))
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(Self::name)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(Self::name)
    }
}
