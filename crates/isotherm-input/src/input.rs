//! The description of an input.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, stat};
use rustix::io::Errno;

use crate::{InputError, Problem};

/// The most bytes that are read of an input for which nothing else is said.
pub const DEFAULT_LIMIT: u64 = 1 << 20;

/// How long a pipe may be silent.
const PATIENCE: Duration = Duration::from_secs(5);

/// A file that is to be read.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    path: &'a Path,
    limit: u64,
    may_be_pipe: bool,
}

impl<'a> Input<'a> {
    /// The input of this path. It must be a regular file, and [`DEFAULT_LIMIT`] bytes of it are read at most.
    pub fn new(path: &'a Path) -> Self {
        Self { path, limit: DEFAULT_LIMIT, may_be_pipe: false }
    }

    /// The same input, limited to so many bytes.
    pub fn limited_to(self, limit: u64) -> Self {
        Self { limit, ..self }
    }

    /// The same input, which may be a pipe as well: standard input, what a shell puts in place of `<(COMMAND)`, or a
    /// named pipe. A pipe through which nothing comes for five seconds is an error. Only
    /// [`bytes`](Self::bytes) and [`text`](Self::text) read pipes.
    pub fn or_pipe(self) -> Self {
        Self { may_be_pipe: true, ..self }
    }

    /// Opens the input for reading at any place. The limit does not apply.
    ///
    /// # Errors
    /// If it is no regular file, or the system refuses.
    pub fn open(self) -> Result<File, InputError> {
        Self { may_be_pipe: false, ..self }.open_any().map(|(file, _)| file).map_err(|problem| self.error(problem))
    }

    /// Reads the whole input.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the input has more bytes than the limit, or a pipe is silent.
    pub fn bytes(self) -> Result<Vec<u8>, InputError> {
        let read = || {
            let (file, kind) = self.open_any()?;
            match kind {
                FileType::Fifo => self.read_pipe(file),
                _ => self.read_file(file),
            }
        };
        read().map_err(|problem| self.error(problem))
    }

    /// Reads the whole input as text.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and if it is not UTF-8.
    pub fn text(self) -> Result<String, InputError> {
        String::from_utf8(self.bytes()?).map_err(|error| self.error(Problem::NotText(error.utf8_error().valid_up_to())))
    }

    fn error(self, problem: Problem) -> InputError {
        InputError::new(self.path, problem)
    }

    fn open_any(self) -> Result<(File, FileType), Problem> {
        // Opening a device may already do something, such as rewinding a tape.
        self.check(FileType::from_raw_mode(stat(self.path)?.st_mode))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::from(openat(CWD, self.path, flags, Mode::empty())?);
        // Something else may have been put in its place.
        let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
        self.check(kind)?;
        Ok((file, kind))
    }

    fn check(self, kind: FileType) -> Result<(), Problem> {
        match kind {
            FileType::RegularFile => Ok(()),
            FileType::Fifo if self.may_be_pipe => Ok(()),
            FileType::Directory => Err(Problem::Directory),
            FileType::Fifo => Err(Problem::NotAFile("a pipe")),
            FileType::CharacterDevice | FileType::BlockDevice => Err(Problem::NotAFile("a device")),
            FileType::Socket => Err(Problem::NotAFile("a socket")),
            FileType::Symlink | FileType::Unknown => Err(Problem::NotAFile("something of an unknown kind")),
        }
    }

    fn read_file(self, file: File) -> Result<Vec<u8>, Problem> {
        if file.metadata()?.len() > self.limit {
            return Err(Problem::TooLarge(self.limit));
        }
        let mut bytes = Vec::new();
        file.take(self.limit.saturating_add(1)).read_to_end(&mut bytes)?;
        self.within_limit(bytes)
    }

    /// Reads a pipe that does not block until all its writers have closed it. A named pipe that no writer has opened
    /// yet counts as silent, although reading it would give an end at once.
    fn read_pipe(self, mut file: File) -> Result<Vec<u8>, Problem> {
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 1 << 16];
        while bytes.len() as u64 <= self.limit {
            wait(&file)?;
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => bytes.extend_from_slice(&chunk[..read]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.within_limit(bytes)
    }

    fn within_limit(self, bytes: Vec<u8>) -> Result<Vec<u8>, Problem> {
        if bytes.len() as u64 > self.limit { Err(Problem::TooLarge(self.limit)) } else { Ok(bytes) }
    }
}

/// Waits until there is something to read or nothing will come any more.
fn wait(file: &File) -> Result<(), Problem> {
    let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&patience)) {
            Ok(0) => return Err(Problem::Silent(PATIENCE)),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
