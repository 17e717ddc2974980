//! Where the files of a dataset are: a folder, or a place in a bucket of an object store.
//!
//! A file appears whole or not at all. [`Dataset`](crate::Dataset) has the rules of what files there are.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use isotherm_input::Input;
use isotherm_output::{LockedOutput, Output, OutputError, OutputFile, Refusal};
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};

use crate::error::FleetError;

/// A file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The path below the dataset, such as `date=2026-11-29/host=6c1f/day.parquet`.
    pub(crate) name: String,
    /// The size, where a reader needs it.
    pub(crate) bytes: u64,
}

/// Which part of a file will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What it says of itself, at its end.
    End,
    All,
}

/// Files by their names. What a method does not find is no error, unless it says so.
pub(crate) trait Store: Debug + Send + Sync {
    /// The path or URL of a file, for people.
    fn shown(&self, name: &str) -> PathBuf;

    /// The files below a folder, or all with an empty name, in any order. It is an error if there is no dataset, where
    /// that can be known.
    fn list(&self, below: &str) -> Result<Vec<Entry>, FleetError>;

    /// Opens files. It is an error if one is not there.
    fn open(&self, files: &[Entry], wanted: Wanted) -> Vec<Result<Source, FleetError>>;

    /// Begins a file.
    fn create(&self, name: &str) -> Result<Sink, FleetError>;

    /// Makes a file appear. Returns whether it does: one that exists stays, unless it is to be replaced.
    fn publish(&self, name: &str, sink: Sink, replace: bool) -> Result<bool, FleetError>;

    /// Renames a file, in the place of one that may be there.
    fn rename(&self, from: &str, to: &str) -> Result<(), FleetError>;

    /// Removes files.
    fn remove(&self, names: &[&str]) -> Result<(), FleetError>;

    /// The bucket, for an engine that reads it by itself. `None` for a folder.
    #[cfg(all(feature = "query", feature = "object-store"))]
    fn bucket(&self) -> Option<Arc<dyn object_store::ObjectStore>> {
        None
    }

    /// The right to compact the dataset, which nobody else has then.
    fn claim(&self) -> Result<Box<dyn Claim>, FleetError>;
}

/// The right to compact a dataset. Dropping it gives it back.
pub(crate) trait Claim {
    /// Makes sure that nobody else has it.
    fn renew(&mut self) -> Result<(), FleetError>;
}

/// The store at a path, or at a URL such as `s3://bucket/prefix`.
pub(crate) fn open(place: &Path) -> Result<Arc<dyn Store>, FleetError> {
    let Some((scheme, _)) = place.to_str().and_then(|text| text.split_once("://")) else {
        return Ok(Arc::new(Folder { root: place.into() }));
    };
    #[cfg(feature = "object-store")]
    if crate::objects::SCHEMES.contains(&scheme) {
        return Ok(Arc::new(crate::objects::Objects::open(place)?));
    }
    Err(FleetError::Scheme { place: place.into(), scheme: isotherm_core::sanitise(scheme).into_owned() })
}

/// A folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) root: PathBuf,
}

impl Folder {
    fn error(&self, name: &str, source: io::Error) -> FleetError {
        FleetError::Directory { path: self.shown(name), source }
    }
}

impl Store for Folder {
    fn shown(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.root.clone() } else { self.root.join(name) }
    }

    fn list(&self, below: &str) -> Result<Vec<Entry>, FleetError> {
        let mut found = Vec::new();
        let mut ahead = vec![below.to_owned()];
        while let Some(folder) = ahead.pop() {
            let entries = match self.shown(&folder).read_dir() {
                // It is not there yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound && folder == below && !below.is_empty() => break,
                entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
            };
            let entries = entries.map_err(|error| self.error(&folder, error))?;
            for name in entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()) {
                let inner = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
                match inner.matches('/').count() {
                    0 if name.starts_with("date=") => ahead.push(inner),
                    1 if name.starts_with("host=") => ahead.push(inner),
                    2 => found.push(Entry { name: inner, bytes: 0 }),
                    _ => {}
                }
            }
        }
        Ok(found)
    }

    fn open(&self, files: &[Entry], _: Wanted) -> Vec<Result<Source, FleetError>> {
        let open = |file: &Entry| Ok(Source::File(Input::new(&self.root.join(&file.name)).open()?));
        files.iter().map(open).collect()
    }

    fn create(&self, name: &str) -> Result<Sink, FleetError> {
        let path = self.root.join(name);
        let folder = path.parent().unwrap_or(&self.root);
        let made = fs::create_dir_all(folder);
        made.map_err(|source| FleetError::Directory { path: folder.into(), source })?;
        let output = Output::new(&path).create()?;
        let writer = output.writer().map_err(|error| OutputError::new(&path, error))?;
        Ok(Sink::File(output, writer))
    }

    fn publish(&self, name: &str, sink: Sink, _: bool) -> Result<bool, FleetError> {
        let (mut output, mut writer) = match sink {
            Sink::File(output, writer) => (output, writer),
            #[cfg(feature = "object-store")]
            Sink::Memory(_) => return Ok(false),
        };
        // What it replaces is removed after it.
        let written = writer.flush().and_then(|()| output.file().sync_all());
        written.map_err(|error| OutputError::new(&self.root.join(name), error))?;
        output.publish()?;
        Ok(true)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FleetError> {
        #[expect(clippy::disallowed_methods, reason = "the dataset renames a file that it has made")]
        let renamed = fs::rename(self.root.join(from), self.root.join(to));
        renamed.map_err(|error| self.error(from, error))
    }

    fn remove(&self, names: &[&str]) -> Result<(), FleetError> {
        for path in names.iter().map(|name| self.root.join(name)) {
            #[expect(clippy::disallowed_methods, reason = "the dataset removes files that it has made")]
            let removed = fs::remove_file(&path);
            match removed {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(FleetError::Remove { path, source });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn claim(&self) -> Result<Box<dyn Claim>, FleetError> {
        match Output::new(&self.root.join("compaction")).lock() {
            Ok(lock) => Ok(Box::new(lock)),
            Err(OutputError { refusal: refusal @ Refusal::Held { .. }, .. }) => {
                Err(FleetError::Compacting { place: self.root.clone(), holder: refusal.to_string() })
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A lock is held until its process ends.
impl Claim for LockedOutput {
    fn renew(&mut self) -> Result<(), FleetError> {
        Ok(())
    }
}

/// A file that is being written.
#[derive(Debug)]
pub(crate) enum Sink {
    File(OutputFile, BufWriter<File>),
    #[cfg(feature = "object-store")]
    Memory(Vec<u8>),
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(_, writer) => writer.write(bytes),
            #[cfg(feature = "object-store")]
            Self::Memory(buffer) => buffer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(_, writer) => writer.flush(),
            #[cfg(feature = "object-store")]
            Self::Memory(_) => Ok(()),
        }
    }
}

/// A file that is open for reading.
#[derive(Debug)]
pub(crate) enum Source {
    File(File),
    #[cfg(feature = "object-store")]
    Object(crate::objects::Object),
}

impl Length for Source {
    fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            #[cfg(feature = "object-store")]
            Self::Object(object) => object.bytes,
        }
    }
}

impl ChunkReader for Source {
    type T = Box<dyn Read + Send>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        match self {
            Self::File(file) => Ok(Box::new(file.get_read(start)?)),
            #[cfg(feature = "object-store")]
            Self::Object(object) => Ok(Box::new(io::Cursor::new(object.read(start..object.bytes)?))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        match self {
            Self::File(file) => file.get_bytes(start, length),
            #[cfg(feature = "object-store")]
            Self::Object(object) => Ok(object.read(start..start + length as u64)?),
        }
    }
}
