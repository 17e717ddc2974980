//! Names of code that a process has made itself: the file `/tmp/perf-PID.map`, which just-in-time compilers write (the
//! kernel's `tools/perf/Documentation/jit-interface.txt`).
//!
//! The file belongs to the process, which may write anything to it at any time. So the file is read, up to a limit, and
//! not mapped. A line that cannot be parsed is skipped; only the name in that line is lost.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use isotherm_core::{LONGEST_NAME, start_of};
use isotherm_input::Input;
use isotherm_kernel::inner_pid;

/// The longest part of a file that is read, in bytes.
const LONGEST: u64 = 64 << 20;

/// A file goes on as it was if the last bytes that were read are still there, up to this many.
const COMPARED: usize = 256;

/// If a file has more functions, the first ones are taken.
const MOST: usize = 1 << 18;

/// So many functions are remembered whose addresses were used again.
const MOST_REPLACED: usize = 1 << 12;

/// The functions of a process that it has made itself.
///
/// Code addresses are used again, and a stack is older than the moment at which its functions are looked up. So each
/// function is known from the time on at which the file did not have it yet.
#[derive(Debug, Default)]
pub struct PerfMap {
    text: Vec<u8>,
    /// How much of the text is lines that were taken in. The last line may be written at this moment.
    taken: usize,
    /// By their starts. No two have an address in common.
    functions: BTreeMap<u64, Function>,
    /// The functions whose addresses were used again, with their starts, and from when on; the last ones are the last.
    replaced: VecDeque<(u64, Function, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    /// Its last address.
    last: u64,
    /// It was made after this time.
    since: Duration,
    /// Where its name is in the text.
    name: (u32, u32),
}

impl PerfMap {
    /// The functions that a text names: one in each line, as `START SIZE NAME` with hexadecimal numbers.
    pub fn parse(text: &[u8]) -> Self {
        let mut map = Self::default();
        map.extend(text, Duration::ZERO);
        map
    }

    /// Adds the functions that `more`, which follows what was read before, names. They were made after the time
    /// `since`.
    fn extend(&mut self, more: &[u8], since: Duration) {
        self.text.extend_from_slice(more);
        let text = std::mem::take(&mut self.text);
        let mut at = self.taken;
        for line in text[at..].split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let ended = line.strip_suffix(b"\n").or(line.strip_suffix(b"\r"));
            let content = ended.unwrap_or(line);
            if let Some((start, size, name)) = parts(content) {
                let from = u32::try_from(at + content.len() - name.len()).ok();
                let name = from.zip(u32::try_from(name.len()).ok());
                let function = |name| Function { last: start.saturating_add(size - 1), since, name };
                name.into_iter().for_each(|name| self.insert(start, function(name)));
            }
            at += line.len();
            if ended.is_some() {
                self.taken = at;
            }
        }
        self.text = text;
    }

    /// Adds a function. An older one that has an address in common with it is gone from now on: memory is used again.
    fn insert(&mut self, start: u64, new: Function) {
        while let Some((&older, &function)) = self.functions.range(..=new.last).next_back()
            && function.last >= start
        {
            self.functions.remove(&older);
            // What is replaced at the time at which it was made was never known.
            if function.since < new.since {
                self.replaced.push_back((older, function, new.since));
            }
        }
        let more = self.replaced.len().saturating_sub(MOST_REPLACED);
        self.replaced.drain(..more);
        if self.functions.len() < MOST {
            self.functions.insert(start, new);
        }
    }

    /// The name of the last function at an address, and how far from its start that is. Of a name of more than 4,096
    /// bytes, the start and `…` are kept.
    pub fn find(&self, address: u64) -> Option<(Cow<'_, str>, u64)> {
        self.find_at(address, Duration::MAX)
    }

    /// The same of the function that was there at this time.
    fn find_at(&self, address: u64, at: Duration) -> Option<(Cow<'_, str>, u64)> {
        let is_at =
            |start: u64, function: &Function| (start..=function.last).contains(&address) && function.since <= at;
        let last = self.functions.range(..=address).next_back().filter(|(start, function)| is_at(**start, function));
        let mut replaced = self.replaced.iter().rev();
        let (start, function) = last.map(|(start, function)| (*start, *function)).or_else(|| {
            let found = replaced.find(|(start, function, until)| is_at(*start, function) && *until > at);
            found.map(|(start, function, _)| (*start, *function))
        })?;
        let (from, length) = (function.name.0 as usize, function.name.1 as usize);
        Some((start_of(&self.text[from..from + length], LONGEST_NAME), address - start))
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
    /// When it was looked at last. What is new afterwards was made since.
    looked: Duration,
}

/// What changes when a file does: its inode, its length and the time of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    inode: u64,
    length: u64,
    modified: SystemTime,
}

impl PerfMapFile {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// The file of process `pid`, which is not read yet.
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, stamp: None, map: PerfMap::default(), looked: Duration::ZERO }
    }

    /// The functions in it now, at the time `now`. None if there is no such file, or if it cannot be read. Compilers
    /// append to the file, so only the end is read of a file that goes on as it was.
    fn read(&mut self, now: Duration) -> &PerfMap {
        let since = std::mem::replace(&mut self.looked, now);
        let path = path(self.pid);
        // Other kinds of files are passed over: the process chooses what is there.
        let stamp = stamp(&path);
        if stamp != self.stamp {
            let kept = self.map.text.len().saturating_sub(COMPARED);
            let read = |from: usize| stamp.and_then(|_| read(&path, from as u64).ok()).unwrap_or_default();
            match read(kept).strip_prefix(&self.map.text[kept..]) {
                Some(more) => self.map.extend(more, since),
                None => self.map = PerfMap::parse(&read(0)),
            }
            self.stamp = stamp;
        }
        &self.map
    }
}

impl PerfMapFile {
    /// The name of the function that was at an address at the time `at`, and how far from its start that is, as the
    /// file has it at the time `now`.
    pub(super) fn find(&mut self, address: u64, at: Duration, now: Duration) -> Option<(Cow<'_, str>, u64)> {
        self.read(now).find_at(address, at)
    }
}

/// What the file of process `pid` is like now. `None` if it has none.
pub(super) fn stamp_of(pid: u32) -> Option<Stamp> {
    stamp(&path(pid))
}

fn path(pid: u32) -> PathBuf {
    let id = inner_pid(Path::new("/"), pid).unwrap_or(pid);
    format!("/proc/{pid}/root/tmp/perf-{id}.map").into()
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Stamp { inode: file.ino(), length: file.len(), modified: file.modified().ok()? })
}

/// Reads a file from there on, up to the longest length.
fn read(path: &Path, from: u64) -> io::Result<Vec<u8>> {
    let mut file = Input::new(path).open().map_err(io::Error::other)?;
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(LONGEST.saturating_sub(from)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    fn found(text: &[u8], address: u64) -> Option<(String, u64)> {
        PerfMap::parse(text).find(address).map(|(name, offset)| (name.into_owned(), offset))
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
    fn what_lay_at_addresses_that_are_used_again_is_gone() {
        let text = b"1000 400 large\n2000 10 first\n2010 10 second\n1200 20 inside\n1ff0 18 across\n";
        assert_eq!(found(text, 0x1210), Some(("inside".into(), 0x10)));
        assert_eq!(found(text, 0x1ff8), Some(("across".into(), 8)));
        assert_eq!(found(text, 0x2010), Some(("second".into(), 0)));
        assert_eq!([0x1000, 0x1300, 0x200c].map(|address| found(text, address)), [const { None }; 3]);
    }

    #[test]
    fn what_is_appended_to_a_file_is_added_also_within_a_line() {
        let mut map = PerfMap::default();
        map.extend(b"1000 10 first\n2000 10 sec", Duration::ZERO);
        assert_eq!(map.find(0x2000).unwrap().0, "sec");
        map.extend(b"ond\n1000 8 third\n", Duration::ZERO);
        let names = [0x1000, 0x1008, 0x2000].map(|address| map.find(address).map(|(name, _)| name.into_owned()));
        assert_eq!(names, [Some("third".into()), None, Some("second".into())]);
    }

    #[test]
    fn an_address_that_is_used_again_has_the_function_of_the_time_of_the_stack() {
        let [one, two, three] = [1, 2, 3].map(Duration::from_secs);
        let mut map = PerfMap::parse(b"1000 40 first\n2000 10 stays\n");
        // At second 2, the file does not have the second function yet, and at second 3 not the third.
        map.extend(b"1020 10 second\n", two);
        map.extend(b"1000 80 third\n", three);
        let at = |address, at| map.find_at(address, at).map(|(name, offset)| (name.into_owned(), offset));
        let named = |name: &str, offset| Some((name.to_owned(), offset));
        assert_eq!(
            [one, two, three].map(|time| at(0x1024, time)),
            [named("first", 0x24), named("second", 4), named("third", 0x24)]
        );
        assert_eq!([one, two, three].map(|time| at(0x1004, time)), [named("first", 4), None, named("third", 4)]);
        assert_eq!(at(0x1050, two), None);
        assert_eq!([one, three].map(|time| at(0x2001, time)), [named("stays", 1), named("stays", 1)]);
        for nth in 0..2 * MOST_REPLACED as u64 {
            map.extend(b"3000 10 again\n", Duration::from_secs(4 + nth));
        }
        assert_eq!((map.replaced.len(), map.functions.len()), (MOST_REPLACED, 3));
    }

    #[test]
    fn what_is_taken_of_a_file_has_a_bound() {
        let mut text = b"1 1 ".to_vec();
        text.resize(1 << 20, b'n');
        let (name, _) = found(&text, 1).unwrap();
        assert!(name.len() == LONGEST_NAME + "…".len() && name.ends_with('…'), "{}", name.len());
        let many: Vec<u8> = (1..=MOST as u64 + 9).flat_map(|at| format!("{at:x} 1 f\n").into_bytes()).collect();
        let map = PerfMap::parse(&many);
        assert_eq!((map.functions.len(), map.find(MOST as u64 + 1)), (MOST, None));
    }

    #[test]
    fn a_file_is_read_again_when_it_has_changed_and_only_if_it_is_one() {
        let pid = std::process::id();
        let path = format!("/tmp/perf-{pid}.map");
        let mut file = PerfMapFile::of(pid);
        assert_eq!((file.pid(), file.read(Duration::ZERO).find(0x1000)), (pid, None));
        let mut name = |text: Option<&str>| {
            let _ = fs::remove_file(&path);
            text.iter().for_each(|text| fs::write(&path, text).unwrap());
            file.read(Duration::ZERO).find(0x1000).map(|(name, _)| name.into_owned())
        };
        assert_eq!(name(Some("1000 10 first\n")).as_deref(), Some("first"));
        assert_eq!(name(Some("1000 10 second\n")).as_deref(), Some("second"));
        assert_eq!(name(None), None);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(file.read(Duration::ZERO).find(0x1000), None);
        fs::remove_file(&path).unwrap();
    }
}
