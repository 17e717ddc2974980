//! The files of watched processes: which USDT probes they have, and watching those that are wanted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use isotherm_kernel::{FileId, read_code_mappings};
use libbpf_rs::{Error, Link, Object, UprobeMultiOpts};

use super::UsdtProbe;
use super::notes::{self, Place};
use crate::bpf::with_log;

/// The program that runs at probes.
const PROGRAM: &str = "executed_probe";
/// All processes, where libbpf takes a process.
const ALL_PROCESSES: i32 = -1;

/// The most files that are checked.
const MOST_FILES: usize = 1 << 14;
/// The most files whose probes are watched. Each takes a file descriptor, and has a number of one byte.
const MOST_WATCHED: usize = 1 << 8;
/// The most places of one file that are watched.
const MOST_PLACES: usize = 1 << 12;
/// The most probes of the files that are kept, to say which ones there are.
const MOST_KNOWN: usize = 1 << 12;

/// The files that watched processes execute.
#[derive(Default)]
pub(super) struct Files {
    /// The files that were checked, with the time of their last change: another file may get the same inode.
    seen: HashMap<FileId, (i64, i64)>,
    /// The files whose probes are watched.
    watched: HashSet<FileId>,
    /// Probes are watched as long as these exist.
    links: Vec<Link>,
    /// Probes of the files that were checked.
    known: BTreeSet<UsdtProbe>,
    /// The indices of the wanted probes that a file has.
    found: BTreeSet<u8>,
    /// Why not all wanted probes of all files are watched.
    failure: Option<String>,
}

impl Files {
    /// Checks the files whose code a process has mapped. A file that was checked before is skipped; with
    /// `again`, it is not if it has changed. Returns whether the process lives.
    pub(super) fn look(&mut self, object: &Object, wanted: &[UsdtProbe], pid: u32, again: bool) -> bool {
        let maps = File::open(format!("/proc/{pid}/maps")).and_then(read_code_mappings);
        let Ok(mappings) = maps else { return false };
        let mut looked = HashSet::new();
        for mapping in &mappings {
            let Some((id, _)) = mapping.file else { continue };
            if !looked.insert(id) || self.watched.contains(&id) || !again && self.seen.contains_key(&id) {
                continue;
            }
            // The file that is mapped, whatever is at its path by now.
            let path = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.range.start(), mapping.range.end());
            self.look_at(object, wanted, Path::new(&path), id, &mapping.name);
        }
        !mappings.is_empty()
    }

    /// Looks at a program that will be executed.
    pub(super) fn look_ahead(&mut self, object: &Object, wanted: &[UsdtProbe], program: &Path) {
        let Ok(metadata) = fs::metadata(program) else { return };
        // Some file systems tell another device in /proc/PID/maps. Then the file is looked at twice, and the program
        // counts a hit once all the same.
        let device = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let id = FileId { device, inode: metadata.ino() };
        self.look_at(object, wanted, program, id, &program.to_string_lossy());
    }

    fn look_at(&mut self, object: &Object, wanted: &[UsdtProbe], path: &Path, id: FileId, name: &str) {
        // Opening a device could do something.
        let Ok(metadata) = fs::metadata(path) else { return };
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        if self.seen.get(&id) == Some(&changed) {
            return;
        }
        if self.seen.len() >= MOST_FILES {
            self.fail(format!("only the first {MOST_FILES} files of the targets were looked at"));
            return;
        }
        self.seen.insert(id, changed);
        let opened = if metadata.is_file() { File::open(path).ok() } else { None };
        let Some((file, again)) = opened.and_then(|file| Some((file.try_clone().ok()?, file))) else { return };
        let places = notes::read(again);
        let is_wanted = |place: &Place| wanted.iter().position(|probe| *probe == place.probe);
        let places_wanted: Vec<(u8, &Place)> =
            places.iter().filter_map(|place| Some((u8::try_from(is_wanted(place)?).ok()?, place))).collect();
        self.watch(object, wanted, &file, id, name, &places_wanted);
        let room = MOST_KNOWN.saturating_sub(self.known.len());
        let new: BTreeSet<UsdtProbe> = places.into_iter().map(|place| place.probe).collect();
        self.known.extend(new.into_iter().take(room));
    }

    fn watch(
        &mut self,
        object: &Object,
        wanted: &[UsdtProbe],
        file: &File,
        id: FileId,
        name: &str,
        places: &[(u8, &Place)],
    ) {
        if places.is_empty() {
            return;
        }
        if places.len() > MOST_PLACES {
            self.fail(format!("only the first {MOST_PLACES} places of USDT probes in {name} are watched"));
        }
        let Some(number) = u8::try_from(self.links.len()).ok() else {
            self.fail(format!("the USDT probes of {name} are not watched, because those of {MOST_WATCHED} files are"));
            return;
        };
        let places = &places[..places.len().min(MOST_PLACES)];
        let cookie = |&(probe, place): &(u8, &Place)| {
            let has_text = wanted.get(usize::from(probe)).is_some_and(UsdtProbe::has_text);
            if has_text { place.argument } else { Default::default() }.cookie(probe, number)
        };
        let options = UprobeMultiOpts {
            offsets: places.iter().map(|(_, place)| place.offset).collect(),
            ref_ctr_offsets: places.iter().map(|(_, place)| place.counter).collect(),
            cookies: places.iter().map(cookie).collect(),
            ..UprobeMultiOpts::default()
        };
        match attach(object, ALL_PROCESSES, &format!("/proc/self/fd/{}", file.as_raw_fd()), options) {
            Ok(link) => {
                self.links.push(link);
                self.watched.insert(id);
                self.found.extend(places.iter().map(|(probe, _)| *probe));
            }
            Err(error) => {
                let error = isotherm_core::chain(&error);
                self.fail(format!("the USDT probes of {name} are not watched: {error}"));
            }
        }
    }

    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    /// Why not all wanted probes of all files are watched: what came first.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// How many files were checked.
    pub(super) fn looked_at(&self) -> usize {
        self.seen.len()
    }

    /// Probes of these files.
    pub(super) fn known(&self) -> &BTreeSet<UsdtProbe> {
        &self.known
    }

    /// The wanted probes that no file has.
    pub(super) fn missing<'a>(&self, wanted: &'a [UsdtProbe]) -> impl Iterator<Item = &'a UsdtProbe> {
        let indexed = wanted.iter().zip(0..=u8::MAX);
        indexed.filter(|(_, index)| !self.found.contains(index)).map(|(probe, _)| probe)
    }

    /// Watches no probe any more.
    pub(super) fn end(&mut self) {
        self.links.clear();
    }
}

/// Runs the program at places of a file.
pub(super) fn attach(object: &Object, pid: i32, path: &str, options: UprobeMultiOpts) -> Result<Link, Error> {
    let program = object.progs_mut().find(|program| program.name() == PROGRAM);
    let program = program.ok_or_else(|| Error::from_raw_os_error(libc::ENOENT))?;
    let (link, _) = with_log(|| program.attach_uprobe_multi_with_opts(pid, path, "", options));
    link
}
