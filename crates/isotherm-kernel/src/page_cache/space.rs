//! The files of a run, as an address space.

use std::collections::{BTreeMap, HashSet};
use std::fs::read_dir;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use isotherm_core::survey::BLOCK_SIZE;
use isotherm_core::{
    AddrRange, AddressSpace, BoxError, FileId, Layout, Mapping, Permissions, TargetId, TargetSpace, push_joined,
};
use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, fstatfs, statfs, statx};
use rustix::io::Errno;
use thiserror::Error;

use super::open_file::{OpenFile, by_block, find, id, is_regular};
use super::places::Places;
use super::{CachedFile, FileTable};
use crate::select::Selection;

/// Where paths begin.
const ROOT: &str = "/";

/// At most this many files are watched.
const MOST_FILES: usize = 1 << 16;

/// Looking for files takes at most one part in this many of the time.
const SHARE: u32 = 50;

/// Files are looked for no more often than this.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// The parts in which page cache is looked for have this many smaller parts each.
const PARTS: u64 = 32;

/// The file systems that have no pages to drop: what is in memory there is nowhere else (`statfs(2)`).
const WITHOUT_CACHE: [(u64, &str); 5] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
];

/// Why the page cache of files cannot be watched, and how to fix it.
#[derive(Debug, Error)]
pub enum FilesError {
    /// The path cannot be found.
    #[error("{path} cannot be found (check the path, and the permissions of the directories above it)")]
    Path {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The path leads to something else.
    #[error("{0} is neither a directory nor a regular file, and only such have page cache that can be dropped")]
    Kind(PathBuf),
    /// The file system keeps its files in memory only.
    #[error("{path} is on {name}, whose files are nowhere but in memory (give files on a disk)")]
    WithoutCache {
        /// The path.
        path: PathBuf,
        /// The file system.
        name: &'static str,
    },
    /// Processes cannot be listed.
    #[error("the processes cannot be listed (is /proc mounted?)")]
    Processes(#[source] std::io::Error),
    /// No process has files.
    #[error("no process matches whose files could be watched (`ps -e` lists the processes)")]
    NoProcess,
    /// A file cannot be opened.
    #[error("{path} cannot be opened for reading (run isotherm as root, or as the owner of the file)")]
    Open {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// The files with page cache among some files and those below some directories, or among those that processes use.
///
/// Symbolic links are not followed, and other file systems that are mounted below a directory are left out. Files are
/// looked for again from time to time, so that new files, and files that were read since, appear.
#[derive(Debug, Default)]
pub struct CachedFiles {
    roots: Vec<PathBuf>,
    /// The processes whose files are watched. `None` for files that are named.
    users: Option<Selection>,
    /// Whether the last look has found one of them.
    has_users: bool,
    table: FileTable,
    places: Places,
    mappings: Arc<[Mapping]>,
    /// When the last look ended, and what it took.
    looked: Option<(Instant, Duration)>,
    left_out: LeftOut,
}

/// The objects that the last look has left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    /// Files that may not be opened.
    refused: usize,
    /// Places where another file system is mounted.
    mounts: usize,
    /// Files with page cache beyond [`MOST_FILES`].
    too_many: usize,
}

impl CachedFiles {
    /// The page cache of these files, and of the files below these directories.
    ///
    /// # Errors
    /// If a path cannot be found, or has no page cache that can be dropped.
    pub fn new(paths: &[PathBuf]) -> Result<Self, FilesError> {
        let mut roots = Vec::new();
        for path in paths {
            let failed = |source: std::io::Error| FilesError::Path { path: path.clone(), source };
            let whole = std::fs::canonicalize(path).map_err(failed)?;
            let (found, stat) = find(&whole).map_err(|errno| failed(errno.into()))?;
            let magic = statfs(&whole).map_err(|errno| failed(errno.into()))?.f_type as u64;
            if let Some(name) = without_cache(magic) {
                return Err(FilesError::WithoutCache { path: path.clone(), name });
            }
            if is_regular(&stat) {
                let open = |errno: Errno| FilesError::Open { path: path.clone(), source: errno.into() };
                OpenFile::open(&found).map_err(open)?;
            } else if !is_directory(&stat) {
                return Err(FilesError::Kind(path.clone()));
            }
            roots.push(whole);
        }
        let mut files = Self { roots, ..Self::default() };
        files.look();
        Ok(files)
    }

    /// The page cache of the files that these processes have open or mapped. It is watched until none of them is there.
    ///
    /// # Errors
    /// If none of them is there, or processes cannot be listed.
    pub fn used_by(users: Selection) -> Result<Self, FilesError> {
        users.find(ROOT.as_ref()).map_err(FilesError::Processes)?;
        let mut files = Self { users: Some(users), ..Self::default() };
        files.look();
        if files.has_users { Ok(files) } else { Err(FilesError::NoProcess) }
    }

    /// The files that were found last.
    pub fn table(&self) -> FileTable {
        self.table.clone()
    }

    /// What the last look has left out, in a sentence for the user. `None` if it was nothing.
    pub fn remark(&self) -> Option<String> {
        let LeftOut { refused, mounts, too_many } = self.left_out;
        let all = [
            (refused, "that may only be opened by root or their owner"),
            (mounts, "on other file systems, which are mounted below (name them, too)"),
            (too_many, "beyond the first 65,536 with page cache"),
        ];
        let parts: Vec<String> =
            all.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        (!parts.is_empty()).then(|| format!("files and directories that are left out: {}", parts.join("; ")))
    }

    /// Looks for files with page cache.
    fn look(&mut self) {
        let began = Instant::now();
        let (files, seen, left_out) = Default::default();
        let mut search = FileSearch { places: &mut self.places, files, seen, left_out };
        for root in &self.roots {
            search.visit(root);
        }
        if let Some(users) = &self.users {
            let own = std::process::id();
            let pids: Vec<u32> = users.find(ROOT.as_ref()).into_iter().flatten().filter(|pid| *pid != own).collect();
            // What has ended, or may not be looked at, has no program.
            let is_there = |pid: &u32| std::fs::read_link(format!("{ROOT}proc/{pid}/exe")).is_ok();
            let pids: Vec<u32> = pids.into_iter().filter(is_there).collect();
            pids.iter().for_each(|pid| search.visit_files_of(*pid));
            self.has_users = !pids.is_empty();
        }
        let FileSearch { files, seen, left_out, .. } = search;
        self.places.retain(|id| seen.contains(id));
        self.left_out = left_out;
        let mapping = |file: &Arc<CachedFile>| Mapping {
            range: file.range,
            permissions: Permissions { read: true, ..Permissions::NONE },
            name: file.path.to_string_lossy().into(),
            node: None,
            file: None,
        };
        let mappings: Arc<[Mapping]> = files.values().map(mapping).collect();
        if mappings != self.mappings {
            self.mappings = mappings;
        }
        self.table.replace(files);
        self.looked = Some((Instant::now(), began.elapsed()));
    }
}

impl AddressSpace for CachedFiles {
    fn read_targets(&mut self) -> Result<Vec<TargetSpace>, BoxError> {
        let is_due = |(at, took): (Instant, Duration)| at.elapsed() >= (took * SHARE).max(LEAST_PAUSE);
        if self.looked.is_none_or(is_due) {
            self.look();
        }
        if !self.awaits_targets() {
            return Ok(Vec::new());
        }
        let mappings = Arc::clone(&self.mappings);
        Ok(vec![TargetSpace { id: TargetId::PageCache, layout: Layout::Ranges, mappings }])
    }

    /// Files may be read later, but not by processes that have ended.
    fn awaits_targets(&self) -> bool {
        self.users.is_none() || self.has_users
    }
}

/// One look for files.
struct FileSearch<'a> {
    places: &'a mut Places,
    files: BTreeMap<u64, Arc<CachedFile>>,
    /// The files that were seen, whether they have page cache or not: a file may have several names.
    seen: HashSet<FileId>,
    left_out: LeftOut,
}

impl FileSearch<'_> {
    /// Visits a file, or a directory and what is below it on the same file system.
    fn visit(&mut self, root: &Path) {
        let Ok((_, of_root)) = find(root) else { return };
        let mut left = vec![root.to_path_buf()];
        while let Some(path) = left.pop() {
            let Ok((found, stat)) = find(&path) else { continue };
            if stat.stx_mnt_id != of_root.stx_mnt_id {
                self.left_out.mounts += 1;
            } else if is_directory(&stat) {
                let entries = read_dir(&path).into_iter().flatten().flatten();
                // Sockets, links and devices are not even looked at.
                let is_wanted =
                    |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_dir());
                left.extend(entries.filter(is_wanted).map(|entry| entry.path()));
            } else if is_regular(&stat) && stat.stx_size > 0 && self.seen.insert(id(&stat)) {
                match OpenFile::open(&found) {
                    Ok(file) => self.take(path, &stat, &file),
                    Err(_) => self.left_out.refused += 1,
                }
            }
        }
    }

    /// Visits the files that a process has open or mapped. Those whose path leads elsewhere by now are left out.
    fn visit_files_of(&mut self, pid: u32) {
        for links in ["fd", "map_files"] {
            let links = read_dir(format!("{ROOT}proc/{pid}/{links}")).into_iter().flatten().flatten();
            for link in links.map(|entry| entry.path()) {
                // The link of a pipe, a socket or the like is no path.
                let Ok(path) = std::fs::read_link(&link) else { continue };
                let Ok(below) = path.strip_prefix(ROOT) else { continue };
                // What is behind the link is looked at, and not opened.
                let Ok(stat) = statx(CWD, &link, AtFlags::empty(), StatxFlags::BASIC_STATS) else { continue };
                if !is_regular(&stat) || self.seen.contains(&id(&stat)) {
                    continue;
                }
                // A process of a container has another root.
                let inside = Path::new(ROOT).join(format!("proc/{pid}/root")).join(below);
                self.visit_file([path.as_path(), inside.as_path()], &stat);
            }
        }
    }

    /// Adds the file by the first of `paths` that leads to it.
    fn visit_file(&mut self, paths: [&Path; 2], stat: &Statx) {
        for path in paths {
            let Ok((found, of_path)) = find(path) else { continue };
            if id(&of_path) != id(stat) || !is_regular(&of_path) {
                continue;
            }
            if !fstatfs(&found).is_ok_and(|of| without_cache(of.f_type as u64).is_none()) {
                return;
            }
            self.seen.insert(id(stat));
            match OpenFile::open(&found) {
                Ok(file) => self.take(path.into(), &of_path, &file),
                Err(_) => self.left_out.refused += 1,
            }
            return;
        }
    }

    /// Adds a file if it has page cache.
    fn take(&mut self, path: PathBuf, stat: &Statx, file: &OpenFile) {
        let Some(range) = self.places.place(id(stat), stat.stx_size) else { return };
        let mut of_file = Vec::new();
        AddrRange::new(0, range.size()).into_iter().for_each(|bytes| cached_parts(file, bytes, &mut of_file));
        if of_file.is_empty() {
            return;
        }
        if self.files.len() >= MOST_FILES {
            self.left_out.too_many += 1;
            return;
        }
        let start = range.start();
        let cached = of_file.iter().filter_map(|part| AddrRange::new(start + part.start(), start + part.end()));
        let file = CachedFile { path, id: id(stat), range, cached: cached.collect() };
        self.files.insert(start, Arc::new(file));
    }
}

/// The name of the file system with this number, if it is one without pages to drop.
fn without_cache(magic: u64) -> Option<&'static str> {
    WITHOUT_CACHE.into_iter().find(|(of, _)| *of == magic & 0xffff_ffff).map(|(_, name)| name)
}

fn is_directory(stat: &Statx) -> bool {
    FileType::from_raw_mode(stat.stx_mode.into()) == FileType::Directory
}

/// Appends the parts of `range` of a file that have page cache, by blocks.
fn cached_parts(file: &OpenFile, range: AddrRange, found: &mut Vec<AddrRange>) {
    match file.stat(range) {
        Ok(stat) if stat.cached == 0 => {}
        Ok(stat) if stat.cached >= range.pages() || range.size() <= BLOCK_SIZE => push_joined(found, range),
        Ok(_) => {
            let blocks = range.size().div_ceil(BLOCK_SIZE);
            let part = PARTS.pow((blocks - 1).ilog(PARTS)) * BLOCK_SIZE;
            let starts = (range.start()..range.end()).step_by(part as usize);
            let parts = starts.filter_map(|at| AddrRange::new(at, at.saturating_add(part))?.intersection(range));
            parts.for_each(|part| cached_parts(file, part, found));
        }
        // Linux before 6.5, and overlays.
        Err(_) => {
            let has_some = |part: &AddrRange| file.resident(*part).is_ok_and(|pages| !pages.is_empty());
            by_block(range).filter(has_some).for_each(|part| push_joined(found, part));
        }
    }
}
