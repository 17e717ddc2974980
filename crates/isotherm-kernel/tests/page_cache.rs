//! The page cache of files that the tests make.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "the tests map files")]
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::ptr;

use isotherm_core::{AddrRange, AddressSpace, PAGE_SIZE, TargetId};
use isotherm_kernel::Selection;
use isotherm_kernel::page_cache::{CachedFiles, Dropped, FilesError, OpenFile};
use isotherm_kernel::pages::FlagTable;
use isotherm_testing::or_skip;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const MIB: u64 = 1 << 20;

/// A directory on a disk.
fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file with these contents in the page cache, all of it clean.
fn made(path: &Path, bytes: u64) {
    let mut file = File::create(path).unwrap();
    // The kernel makes no folio that is larger than a write, and a folio is dirty as a whole.
    (0..bytes).step_by(64 << 10).for_each(|at| file.write_all(&vec![7; (bytes - at).min(64 << 10) as usize]).unwrap());
    file.sync_all().unwrap();
    read(path);
}

fn read(path: &Path) {
    File::open(path).unwrap().read_to_end(&mut Vec::new()).unwrap();
}

/// The only file that is found, and where it is.
fn only(files: &CachedFiles) -> (OpenFile, AddrRange) {
    let all = files.table().parts(AddrRange::new(0, u64::MAX).unwrap());
    let [(file, _)] = &all[..] else { panic!("{all:?}") };
    (file.open().unwrap(), AddrRange::new(0, file.range.size()).unwrap())
}

fn files(path: &Path) -> CachedFiles {
    CachedFiles::new(&[path.into()]).unwrap()
}

#[test]
fn files_with_page_cache_are_found_below_a_directory_and_links_and_other_objects_are_not() {
    let dir = directory();
    fs::create_dir(dir.path().join("below")).unwrap();
    made(&dir.path().join("below/large"), 5 * MIB + 1);
    made(&dir.path().join("small"), 10);
    fs::write(dir.path().join("empty"), "").unwrap();
    fs::hard_link(dir.path().join("small"), dir.path().join("small again")).unwrap();
    symlink("/etc/passwd", dir.path().join("link")).unwrap();
    symlink("/", dir.path().join("root")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let mut found = files(dir.path());
    let spaces = found.read_targets().unwrap();
    assert_eq!((spaces.len(), spaces[0].id), (1, TargetId::PageCache));
    let sizes: Vec<(String, u64)> = spaces[0]
        .mappings
        .iter()
        .map(|mapping| (PathBuf::from(&*mapping.name).file_name().unwrap().display().to_string(), mapping.range.size()))
        .collect();
    let mut sizes: Vec<(&str, u64)> = sizes.iter().map(|(name, size)| (&name[..5], *size)).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [("large", 5 * MIB + PAGE_SIZE), ("small", PAGE_SIZE)]);
    assert_eq!(found.remark(), None);
}

#[test]
fn what_has_no_page_cache_to_drop_is_refused_with_the_reason() {
    let refusal = |path: &str| CachedFiles::new(&[path.into()]).unwrap_err();
    assert!(matches!(refusal("/proc/self/status"), FilesError::WithoutCache { name: "proc", .. }));
    assert!(matches!(refusal("/no/such/file"), FilesError::Path { .. }));
    let dir = directory();
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    assert!(matches!(CachedFiles::new(&[fifo]).unwrap_err(), FilesError::Kind(_)));
}

#[test]
fn the_files_that_a_process_has_open_or_mapped_are_found_and_no_others() {
    let dir = directory();
    for name in ["open", "mapped", "other"] {
        made(&dir.path().join(name), 4096);
    }
    let script = "import mmap, sys, time
a = open('open'); b = open('mapped', 'rb'); c = mmap.mmap(b.fileno(), 0, prot=mmap.PROT_READ); b.close()
print('ready', flush=True)
sys.stdin.read()";
    let mut python = Command::new("python3");
    python.args(["-c", script]).current_dir(dir.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = or_skip!(python.spawn().map_err(|error| format!("python3: {error}")));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let found = CachedFiles::used_by(Selection::pids([child.id()])).map(|files| files.table());
    let names = found.map(|table| {
        let all = table.parts(AddrRange::new(0, u64::MAX).unwrap());
        let ours = all.iter().filter(|(file, _)| file.path.starts_with(dir.path()));
        ours.map(|(file, _)| file.path.file_name().unwrap().display().to_string()).collect::<BTreeSet<_>>()
    });
    // It ends with its standard input.
    drop(child.stdin.take());
    child.wait().unwrap();
    let names = names.unwrap();
    // The kernel shows what is mapped to root only.
    assert!(names.contains("open") && !names.contains("other"), "{names:?}");
    assert!(!rustix::process::geteuid().is_root() || names.contains("mapped"), "{names:?}");
    assert!(matches!(CachedFiles::used_by(Selection::pids([child.id()])), Err(FilesError::NoProcess)));
}

#[test]
fn clean_pages_are_dropped_and_come_back_from_the_file() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, MIB);
    let (file, whole) = only(&files(&path));
    assert_eq!(file.resident(whole).unwrap().count() as u64 * PAGE_SIZE, MIB);
    let half = AddrRange::new(MIB / 2, MIB).unwrap();
    let dropped = file.drop_clean(half, None);
    // Where the file system has large folios, those that reach into the other half stay.
    let dropped = or_skip!(dropped.map_err(|errno| format!("cachestat: {errno}")));
    assert_eq!(dropped.dropped + dropped.left, MIB / 2);
    let all = file.drop_clean(whole, None).unwrap();
    assert_eq!(all, Dropped { dropped: MIB - dropped.dropped, ..Dropped::default() });
    assert!(file.resident(whole).unwrap().is_empty());
    assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn changed_pages_are_left_and_counted_and_nobody_begins_to_write_them() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, MIB);
    let mut changed = File::options().write(true).open(&path).unwrap();
    changed.write_all(&vec![8; 64 << 10]).unwrap();
    let (file, whole) = only(&files(&path));
    let by_flags = FlagTable::open(Path::new("/")).ok();
    let before = or_skip!(file.stat(whole).map_err(|errno| format!("cachestat: {errno}")));
    let dropped = file.drop_clean(whole, by_flags.as_ref()).unwrap();
    let after = file.stat(whole).unwrap();
    assert_eq!(before.dirty * PAGE_SIZE, 64 << 10);
    assert_eq!(dropped.dirty, 64 << 10, "{dropped:?}");
    assert_eq!((after.dirty, after.writeback), (before.dirty, 0), "{after:?}");
    assert!(dropped.dropped > 0, "{dropped:?}");
    let contents = fs::read(&path).unwrap();
    assert!(contents[..64 << 10].iter().all(|byte| *byte == 8) && contents[64 << 10..].iter().all(|byte| *byte == 7));
}

#[test]
fn pages_that_a_process_maps_are_left() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, MIB);
    let (file, whole) = only(&files(&path));
    or_skip!(file.stat(whole).map_err(|errno| format!("cachestat: {errno}")));
    let mapped = File::open(&path).unwrap();
    // SAFETY: the kernel chooses the address.
    let memory = unsafe {
        mmap(ptr::null_mut(), MIB as usize, ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE, &mapped, 0)
    };
    let memory = memory.unwrap();
    let kept = file.drop_clean(whole, None).unwrap();
    // SAFETY: the mapping was made above, and nothing refers to it.
    unsafe { munmap(memory, MIB as usize) }.unwrap();
    assert_eq!(kept, Dropped { left: MIB, ..Dropped::default() });
    assert_eq!(file.drop_clean(whole, None).unwrap().dropped, MIB);
}

#[test]
fn the_frames_of_pages_are_found_without_a_mark_that_they_were_accessed() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, MIB);
    let (file, whole) = only(&files(&path));
    let flags = or_skip!(FlagTable::open(Path::new("/")));
    let before = or_skip!(file.frames(whole).map_err(|errno| format!("page frame numbers: {errno}")));
    assert_eq!(before.len() as u64 * PAGE_SIZE, MIB);
    const ACCESSED: u64 = 1 << 2 | 1 << 6;
    let marks = |frames: &[(usize, u64)]| -> Vec<u64> {
        frames.iter().map(|(_, frame)| flags.flags(*frame).unwrap().unwrap().0 & ACCESSED).collect()
    };
    let first = marks(&before);
    for _ in 0..3 {
        assert_eq!(file.frames(whole).unwrap(), before);
    }
    assert_eq!(marks(&before), first);
    let mapped = before.iter().filter(|(_, frame)| !flags.flags(*frame).unwrap().unwrap().is_cached_only());
    assert_eq!(mapped.count(), 0, "nobody maps the pages any more");
    // The next reads do leave a mark.
    (0..3).for_each(|_| read(&path));
    assert_ne!(marks(&before), first);
}

#[test]
fn dirty_pages_are_found_by_their_flags_where_cachestat_is_missing() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, MIB);
    let (file, whole) = only(&files(&path));
    let flags = or_skip!(FlagTable::open(Path::new("/")));
    or_skip!(file.frames(whole).map_err(|errno| format!("page frame numbers: {errno}")));
    let file = file.without_counts();
    assert!(file.drop_clean(whole, None).is_err());
    File::options().write(true).open(&path).unwrap().write_all(&[8; 4096]).unwrap();
    let dropped = file.drop_clean(whole, Some(&flags)).unwrap();
    assert!(dropped.dirty >= PAGE_SIZE && dropped.dropped > 0, "{dropped:?}");
    assert_eq!(dropped.dropped + dropped.dirty + dropped.left, MIB);
}

#[test]
fn another_file_at_the_path_is_not_opened() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, 4096);
    let found = files(&path);
    let all = found.table().parts(AddrRange::new(0, u64::MAX).unwrap());
    fs::rename(&path, dir.path().join("old")).unwrap();
    assert!(all[0].0.open().is_err());
    symlink(dir.path().join("old"), &path).unwrap();
    assert!(all[0].0.open().is_err());
    fs::remove_file(&path).unwrap();
    made(&path, 4096);
    assert!(all[0].0.open().is_err());
}

#[test]
fn a_file_that_has_become_shorter_has_no_pages_there() {
    let dir = directory();
    let path = dir.path().join("file");
    made(&path, MIB);
    let (file, whole) = only(&files(&path));
    File::options().write(true).open(&path).unwrap().set_len(PAGE_SIZE).unwrap();
    let left = file.frames(whole).map(|frames| frames.len()).unwrap_or(1);
    assert_eq!(left, 1);
    assert_eq!(file.resident(whole).unwrap().count(), 1);
}
