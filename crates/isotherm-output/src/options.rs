//! The description of an output.

use std::fs::File;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, stat};
use rustix::io::Errno;

use crate::file::{LockedOutput, OutputFile};
use crate::lock::Lock;
use crate::place::{OWNER_ONLY, Place};
use crate::walk::{Named, is_trusted, walk};
use crate::{OutputError, Refusal};

/// A file that is to be written. Nothing is opened or created before [`create`](Self::create), [`lock`](Self::lock) or
/// [`append`](Self::append).
#[derive(Clone, Debug)]
pub struct Output {
    path: PathBuf,
    mode: Mode,
    keeps_previous: bool,
    inputs: Vec<PathBuf>,
}

impl Output {
    /// The output of this path. Only its owner can read it.
    pub fn new(path: &Path) -> Self {
        Self { path: path.into(), mode: OWNER_ONLY, keeps_previous: false, inputs: Vec::new() }
    }

    /// The same output, which everybody can read. It must hold nothing that others may not know, such as addresses.
    pub fn readable_by_all(self) -> Self {
        Self { mode: OWNER_ONLY | Mode::RGRP | Mode::ROTH, ..self }
    }

    /// The same output. The file that it replaces is kept with `.old` after its name, unless it is empty.
    pub fn keeping_previous(self) -> Self {
        Self { keeps_previous: true, ..self }
    }

    /// The same output. It is refused if it is one of these files. A file that does not exist is passed over.
    pub fn apart_from<P: Into<PathBuf>>(mut self, inputs: impl IntoIterator<Item = P>) -> Self {
        self.inputs.extend(inputs.into_iter().map(Into::into));
        self
    }

    /// Begins to write the output.
    ///
    /// # Errors
    /// If it cannot be written. Nothing has changed then.
    pub fn create(self) -> Result<OutputFile, OutputError> {
        self.lock()?.create()
    }

    /// Keeps other writers from the output, and removes what a writer left that was killed. A stream is opened, which
    /// waits for the reader of a pipe.
    ///
    /// # Errors
    /// If it cannot be written. Nothing has changed then.
    pub fn lock(self) -> Result<LockedOutput, OutputError> {
        let locked = match walk(&self.path).map_err(|refusal| self.error(refusal))? {
            Named::File(place, existing) => self.lock_file(place, existing),
            Named::Special(place, stat) => self.open_special(&place, &stat).map(|file| self.stream(file)),
            Named::Descriptor(place, stat) => self.open_descriptor(&place, &stat).map(|file| self.stream(file)),
        };
        locked.map_err(|refusal| self.error(refusal))
    }

    /// Opens the output for appending, for a program that writes to it by itself. It is not locked.
    ///
    /// # Errors
    /// If it cannot be opened, or belongs to another user.
    pub fn append(self) -> Result<File, OutputError> {
        let opened = walk(&self.path).and_then(|found| match found {
            Named::File(place, None) => Ok(place.create(OFlags::WRONLY | OFlags::APPEND)?),
            Named::File(place, Some(stat)) => {
                self.refuse_input(&stat)?;
                let file = place.open(OFlags::WRONLY | OFlags::APPEND)?;
                let opened = fstat(&file)?;
                if !is_trusted(opened.st_uid) {
                    return Err(Refusal::ForeignFile(opened.st_uid));
                }
                self.refuse_input(&opened)?;
                Ok(file)
            }
            Named::Special(place, stat) => self.open_special(&place, &stat),
            Named::Descriptor(place, stat) => self.open_descriptor(&place, &stat),
        });
        opened.map_err(|refusal| self.error(refusal))
    }

    fn error(&self, refusal: Refusal) -> OutputError {
        OutputError::new(&self.path, refusal)
    }

    fn stream(&self, file: File) -> LockedOutput {
        LockedOutput::stream(self.path.clone(), file)
    }

    fn lock_file(&self, place: Place, existing: Option<Stat>) -> Result<LockedOutput, Refusal> {
        existing.iter().try_for_each(|stat| self.refuse_input(stat))?;
        if self.keeps_previous {
            self.check_old(&place.old()?)?;
        }
        let lock = Lock::take(&place)?;
        let part = place.beside(".isotherm-part")?;
        part.remove()?;
        Ok(LockedOutput::file(self.path.clone(), place, part, lock, self.mode, self.keeps_previous))
    }

    /// Checks the place that the previous file is kept at.
    fn check_old(&self, old: &Place) -> Result<(), Refusal> {
        let Some(stat) = old.stat()? else { return Ok(()) };
        match self.refuse_input(&stat) {
            Err(Refusal::Input) => return Err(Refusal::KeptOverInput(old.path())),
            checked => checked?,
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Err(Refusal::KeptOverDirectory(old.path())),
            // Another process may be writing it as an output of its own.
            _ => Lock::take(old).map(drop),
        }
    }

    /// Refuses a regular file that is an input.
    fn refuse_input(&self, output: &Stat) -> Result<(), Refusal> {
        if is_input(output, &self.inputs) { Err(Refusal::Input) } else { Ok(()) }
    }

    /// Opens a pipe or a device.
    fn open_special(&self, place: &Place, stat: &Stat) -> Result<File, Refusal> {
        let file = place.open(OFlags::WRONLY)?;
        let opened = fstat(&file)?;
        if FileType::from_raw_mode(opened.st_mode) != FileType::from_raw_mode(stat.st_mode) {
            // Something else was put in its place.
            return Err(Errno::AGAIN.into());
        }
        Ok(file)
    }

    /// Opens what is behind a file descriptor.
    fn open_descriptor(&self, place: &Place, stat: &Stat) -> Result<File, Refusal> {
        self.refuse_input(stat)?;
        // Standard output and error are shared with who started isotherm: the place to write to, and sockets, which
        // cannot be opened again.
        for standard in [rustix::stdio::stdout(), rustix::stdio::stderr()] {
            let known = fstat(standard)?;
            if (known.st_dev, known.st_ino, known.st_rdev) == (stat.st_dev, stat.st_ino, stat.st_rdev) {
                return Ok(rustix::io::fcntl_dupfd_cloexec(standard, 0)?.into());
            }
        }
        // What was written to a file before stays.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOCTTY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&place.directory, &place.name, flags, Mode::empty())?.into())
    }
}

/// Whether an output is one of these files, and a regular file. A file that does not exist is passed over.
pub(crate) fn is_input<P: AsRef<Path>>(output: &Stat, inputs: impl IntoIterator<Item = P>) -> bool {
    let is_output = |input: Stat| (input.st_dev, input.st_ino) == (output.st_dev, output.st_ino);
    FileType::from_raw_mode(output.st_mode) == FileType::RegularFile
        && inputs.into_iter().any(|input| stat(input.as_ref()).is_ok_and(is_output))
}
