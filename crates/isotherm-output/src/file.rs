//! An output that is being written.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, linkat, renameat};

use crate::lock::Lock;
use crate::place::{OWNER_ONLY, Place};
use crate::{OutputError, Refusal};

/// An output that no other process can begin to write. Several versions of it can be written one after the other.
#[derive(Clone, Debug)]
pub struct LockedOutput {
    path: Arc<Path>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Stream(Arc<File>),
    File(Arc<LockedFile>),
}

/// A file that is replaced by a whole one.
#[derive(Debug)]
struct LockedFile {
    place: Place,
    /// Where it is written.
    part: Place,
    mode: Mode,
    keeps_previous: bool,
    _lock: Lock,
}

impl LockedOutput {
    pub(crate) fn stream(path: PathBuf, file: File) -> Self {
        Self { path: path.into(), kind: Kind::Stream(Arc::new(file)) }
    }

    pub(crate) fn file(path: PathBuf, place: Place, part: Place, lock: Lock, mode: Mode, keeps_previous: bool) -> Self {
        let file = LockedFile { place, part, mode, keeps_previous, _lock: lock };
        Self { path: path.into(), kind: Kind::File(Arc::new(file)) }
    }

    /// Begins to write a version of the output. There must be no other that was not published.
    ///
    /// # Errors
    /// If no file can be created.
    pub fn create(&self) -> Result<OutputFile, OutputError> {
        let file = match &self.kind {
            Kind::Stream(file) => file.try_clone().map_err(Refusal::from),
            Kind::File(locked) => locked.part.create(OFlags::RDWR).map_err(Refusal::from),
        };
        let file = file.map_err(|refusal| OutputError::new(&self.path, refusal))?;
        Ok(OutputFile { output: self.clone(), file, is_published: false })
    }
}

/// An output that is being written. Dropping it before it is [published](Self::publish) leaves what was there before.
#[derive(Debug)]
pub struct OutputFile {
    output: LockedOutput,
    file: File,
    is_published: bool,
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let (Kind::File(locked), false) = (&self.output.kind, self.is_published) {
            // If this fails, the next writer of the output removes it.
            let _ = locked.part.remove();
        }
    }
}

impl OutputFile {
    /// The path of the output, as it was given.
    pub fn path(&self) -> &Path {
        &self.output.path
    }

    /// The open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Whether the output is standard output, a pipe or a device, which others read as it is written.
    pub fn is_stream(&self) -> bool {
        matches!(self.output.kind, Kind::Stream(_))
    }

    /// A buffered writer of the file. It must be flushed before the file is published.
    ///
    /// # Errors
    /// If this process has no file descriptor left.
    pub fn writer(&self) -> io::Result<BufWriter<File>> {
        Ok(BufWriter::new(self.file.try_clone()?))
    }

    /// Gives the file the name of the output. What is written later goes to the same file.
    ///
    /// # Errors
    /// If the system refuses. What was there before has its name still.
    pub fn publish(&mut self) -> Result<(), OutputError> {
        if let (Kind::File(locked), false) = (&self.output.kind, self.is_published) {
            locked.publish(&self.file).map_err(|refusal| OutputError::new(&self.output.path, refusal))?;
        }
        self.is_published = true;
        Ok(())
    }

    /// Publishes the file, and ends writing.
    ///
    /// # Errors
    /// As [`publish`](Self::publish).
    pub fn finish(mut self) -> Result<(), OutputError> {
        self.publish()
    }

    /// Lets `write` write the whole output, and publishes it.
    ///
    /// # Errors
    /// An error of `write` is that of the output.
    pub fn write_whole(self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<(), OutputError> {
        let written = self.writer().and_then(|mut writer| {
            write(&mut writer)?;
            writer.flush()
        });
        written.map_err(|error| OutputError::new(self.path(), error))?;
        self.finish()
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl LockedFile {
    fn publish(&self, file: &File) -> Result<(), Refusal> {
        if self.mode != OWNER_ONLY {
            fchmod(file, self.mode)?;
        }
        if self.keeps_previous {
            self.keep()?;
        }
        let directory = &self.place.directory;
        Ok(renameat(directory, &self.part.name, directory, &self.place.name)?)
    }

    /// Keeps the file that is about to be replaced.
    fn keep(&self) -> Result<(), Refusal> {
        let is_kept = |stat: &rustix::fs::Stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size > 0
        };
        if !self.place.stat()?.as_ref().is_some_and(is_kept) {
            return Ok(());
        }
        let old = self.place.old()?;
        let _lock = Lock::take(&old)?;
        old.remove()?;
        // With a second name for the file, there is no moment without a file of the first name, so that a killed
        // recorder leaves one. File systems without hard links have such a moment. Nor may everybody link to a file of
        // another user.
        let directory = &self.place.directory;
        if linkat(directory, &self.place.name, directory, &old.name, AtFlags::empty()).is_err() {
            renameat(directory, &self.place.name, directory, &old.name)?;
        }
        Ok(())
    }
}
