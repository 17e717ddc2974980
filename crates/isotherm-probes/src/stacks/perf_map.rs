//! Names of code that a process has made itself: the file `/tmp/perf-PID.map`, which just-in-time compilers write (the
//! kernel's `tools/perf/Documentation/jit-interface.txt`).
//!
//! The file belongs to the process, which may write anything to it at any time. So the file is read, up to a limit, and
//! not mapped. A line that cannot be parsed is skipped; only the name in that line is lost.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use isotherm_core::{LONGEST_NAME, start_of};
use isotherm_input::{Input, InputError};
use isotherm_kernel::inner_pid;

/// A longer file is not read, in bytes.
const LONGEST: u64 = 64 << 20;

/// If a file has more functions, the first ones are taken.
const MOST: usize = 1 << 20;

/// The functions of a process that it has made itself.
#[derive(Debug, Default)]
pub struct PerfMap {
    text: Vec<u8>,
    /// In the order of their starts, each of which is there once.
    functions: Vec<Function>,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    start: u64,
    size: u64,
    /// Where its name is in the text.
    name: (u32, u32),
}

impl PerfMap {
    /// The functions that a text names: one in each line, as `START SIZE NAME` with hexadecimal numbers. Of several at
    /// one address, the last is there: memory is used again.
    pub fn parse(text: Vec<u8>) -> Self {
        let mut functions = Vec::new();
        let mut at = 0;
        for line in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
            if let Some((start, size, name)) = parts(line) {
                let from = at + line.len() - name.len();
                let place = u32::try_from(from).ok().zip(u32::try_from(name.len()).ok());
                functions.extend(place.map(|name| Function { start, size, name }));
            }
            if functions.len() == MOST {
                break;
            }
            at += line.len() + 1;
        }
        // The last comes first among equals.
        functions.reverse();
        functions.sort_by_key(|function| function.start);
        functions.dedup_by_key(|function| function.start);
        Self { text, functions }
    }

    /// The name of the function at an address, and how far from its start that is. Of a name of more than 4,096 bytes,
    /// the start and `…` are kept.
    pub fn find(&self, address: u64) -> Option<(Cow<'_, str>, u64)> {
        let after = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions[..after].last()?;
        let offset = address - function.start;
        let (from, length) = (function.name.0 as usize, function.name.1 as usize);
        (offset < function.size).then(|| (start_of(&self.text[from..from + length], LONGEST_NAME), offset))
    }
}

/// The start, the size and the name in a line.
fn parts(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let mut parts = line.splitn(3, |byte| byte.is_ascii_whitespace());
    let [start, size, name] = [parts.next()?, parts.next()?, parts.next()?];
    let number = |digits: &[u8]| u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
    let (start, size) = (number(start)?, number(size)?);
    (size > 0 && !name.is_empty()).then_some((start, size, name))
}

/// The file of a process as it was when it was read.
#[derive(Debug)]
pub(super) struct PerfMapFile {
    pid: u32,
    stamp: Option<Stamp>,
    map: PerfMap,
}

/// What changes when a file does: its inode, its length and the time of its last change.
type Stamp = (u64, u64, SystemTime);

impl PerfMapFile {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The file of process `pid`, which is not read yet.
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, stamp: None, map: PerfMap::default() }
    }

    /// The functions in it now. None if there is no such file, or if it cannot be read.
    pub(super) fn read(&mut self) -> &PerfMap {
        let path = path(self.pid);
        // Other kinds of files are passed over: the process chooses what is there.
        let stamp = stamp(&path).ok();
        if stamp != self.stamp {
            let text = if stamp.is_some() { read(&path).unwrap_or_default() } else { Vec::new() };
            (self.stamp, self.map) = (stamp, PerfMap::parse(text));
        }
        &self.map
    }
}

fn path(pid: u32) -> PathBuf {
    let id = inner_pid(Path::new("/"), pid).unwrap_or(pid);
    format!("/proc/{pid}/root/tmp/perf-{id}.map").into()
}

fn stamp(path: &Path) -> io::Result<Stamp> {
    let file = fs::symlink_metadata(path)?;
    if !file.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok((std::os::unix::fs::MetadataExt::ino(&file), file.len(), file.modified()?))
}

fn read(path: &Path) -> Result<Vec<u8>, InputError> {
    Input::new(path).limited_to(LONGEST).bytes()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn found(text: &[u8], address: u64) -> Option<(String, u64)> {
        PerfMap::parse(text.to_vec()).find(address).map(|(name, offset)| (name.into_owned(), offset))
    }

    #[test]
    fn a_function_is_found_from_its_start_to_its_end() {
        let text = b"7f00 10 LazyCompile:~main /a b.js:1\n7f20 8 other\r\n7e00 100 before";
        assert_eq!(found(text, 0x7eff), Some(("before".into(), 0xff)));
        assert_eq!(found(text, 0x7f00), Some(("LazyCompile:~main /a b.js:1".into(), 0)));
        assert_eq!(found(text, 0x7f0f), Some(("LazyCompile:~main /a b.js:1".into(), 0xf)));
        assert_eq!(found(text, 0x7f20), Some(("other".into(), 0)));
        assert_eq!([0x7f10, 0x7f28, 0x7dff, u64::MAX].map(|address| found(text, address)), [const { None }; 4]);
    }

    #[test]
    fn a_bad_line_costs_its_own_name_only_and_the_last_of_several_counts() {
        let text =
            b"1000 10 old\n\nx 10 bad\n2000 10\n2000\n-1 1 a\n1000 0 empty\n1000 10 n\xffew\xe2\n3000 10 last \n";
        assert_eq!(found(text, 0x1001), Some(("n\\xffew\\xe2".into(), 1)));
        assert_eq!(found(text, 0x3000), Some(("last ".into(), 0)));
        assert_eq!(found(text, 0x2000), None);
        assert_eq!(found(b"ffffffffffffffff 2 top\n", u64::MAX), Some(("top".into(), 0)));
    }

    #[test]
    fn what_is_taken_of_a_file_has_a_bound() {
        let mut text = b"1 1 ".to_vec();
        text.resize(1 << 20, b'n');
        let (name, _) = found(&text, 1).unwrap();
        assert!(name.len() == LONGEST_NAME + "…".len() && name.ends_with('…'), "{}", name.len());
        let many = (1..=MOST as u64 + 9).flat_map(|at| format!("{at:x} 1 f\n").into_bytes()).collect();
        let map = PerfMap::parse(many);
        assert_eq!((map.functions.len(), map.find(MOST as u64 + 1)), (MOST, None));
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_only_if_it_is_one() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let mut file = PerfMapFile::of(pid);
        assert_eq!((file.pid(), file.read().find(0x1000)), (pid, None));
        let mut name = |text: Option<&str>| {
            let _ = fs::remove_file(&path);
            text.iter().for_each(|text| fs::write(&path, text).unwrap());
            file.read().find(0x1000).map(|(name, _)| name.into_owned())
        };
        assert_eq!(name(Some("1000 10 first\n")).as_deref(), Some("first"));
        assert_eq!(name(Some("1000 10 second\n")).as_deref(), Some("second"));
        assert_eq!(name(None), None);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(file.read().find(0x1000), None);
        fs::remove_file(&path).unwrap();
    }
}
