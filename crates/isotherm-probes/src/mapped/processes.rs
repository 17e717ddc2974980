//! The address spaces of all processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use isotherm_core::{Layout, Mapping, TargetId, TargetSpace};
use isotherm_kernel::{MappingNames, memory_id, process_ids, read_mappings};
use rustix::io::Errno;

use super::MappedError;

/// Lists all processes that have memory.
#[derive(Debug)]
pub(super) struct ProcessList {
    root: PathBuf,
    proc: PathBuf,
    /// By process ID.
    known: BTreeMap<u32, Arc<[Mapping]>>,
    names: MappingNames,
}

impl ProcessList {
    /// `root` stands for `/`.
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.into(), proc: root.join("proc"), known: BTreeMap::new(), names: MappingNames::default() }
    }

    /// Replaces `spaces` by the processes that have memory now, sorted by process ID. A process whose mappings are the
    /// same as the last time shares the list of them with that time. Returns how many processes refuse access.
    ///
    /// The identities have no start time. A process ID that was given to another process is found by the reader of its
    /// page tables.
    pub(super) fn read(&mut self, spaces: &mut Vec<TargetSpace>) -> Result<usize, MappedError> {
        let unreadable = |source| MappedError::Processes { path: self.proc.clone(), source };
        let mut before = std::mem::take(&mut self.known);
        let mut refused = 0;
        for pid in process_ids(&self.root).map_err(unreadable)? {
            let before = before.remove(&pid);
            let mut read = |id: u32| {
                let maps = File::open(self.proc.join(id.to_string()).join("maps"))?;
                read_mappings(maps, &mut self.names, before.as_ref())
            };
            let mappings = match read(pid) {
                // A kernel thread, or a process that has ended, has no mappings. If only its main thread has ended,
                // another one has them.
                Ok(none) if none.is_empty() => match memory_id(&self.root, pid) {
                    id if id == pid => Ok(none),
                    id => read(id),
                },
                read => read,
            };
            match mappings {
                Ok(none) if none.is_empty() => {}
                Ok(mappings) => _ = self.known.insert(pid, mappings),
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => refused += 1,
                // The process has ended in the meantime.
                Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::SRCH | Errno::NOENT)) => {}
                // It can be read at another time, and is not idle until then.
                Err(_) => match before {
                    Some(mappings) => _ = self.known.insert(pid, mappings),
                    None => refused += 1,
                },
            }
        }
        self.names.tidy();
        spaces.clear();
        spaces.extend(self.known.iter().map(|(&pid, mappings)| TargetSpace {
            id: TargetId::process(pid, Duration::ZERO),
            layout: Layout::Process,
            mappings: Arc::clone(mappings),
        }));
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn processes_come_and_go_and_mappings_that_stay_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let maps = |pid: u32, text: &str| {
            let directory = root.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("maps"), text).unwrap();
        };
        maps(7, "1000-3000 rw-p 00000000 00:00 0 \n");
        maps(2, "");
        maps(12, "5000-6000 r-xp 00000000 08:01 17 /bin/x\n6000-7000 rw-p 00000000 00:00 0 [heap]\n");
        fs::write(root.path().join("proc/uptime"), "1 1").unwrap();
        let mut list = ProcessList::new(root.path());
        let mut read = || {
            let mut spaces = Vec::new();
            assert_eq!(list.read(&mut spaces).unwrap(), 0);
            spaces
        };
        let first = read();
        assert_eq!(first.iter().map(|space| space.id.pid()).collect::<Vec<_>>(), [Some(7), Some(12)]);
        assert_eq!(first[1].mappings.iter().map(|mapping| &*mapping.name).collect::<Vec<_>>(), ["/bin/x", "[heap]"]);

        maps(7, "1000-4000 rw-p 00000000 00:00 0 \n");
        maps(30, "1000-2000 rw-p 00000000 00:00 0 \n");
        let second = read();
        assert_eq!(second.iter().map(|space| space.id.pid()).collect::<Vec<_>>(), [Some(7), Some(12), Some(30)]);
        assert_eq!(second[0].mappings[0].range.size(), 0x3000);
        assert!(Arc::ptr_eq(&first[1].mappings, &second[1].mappings));

        fs::remove_dir_all(root.path().join("proc/12")).unwrap();
        assert_eq!(read().iter().map(|space| space.id.pid()).collect::<Vec<_>>(), [Some(7), Some(30)]);
        fs::remove_dir_all(root.path().join("proc")).unwrap();
        let error = list.read(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("proc cannot be listed"), "{error}");
    }
}
