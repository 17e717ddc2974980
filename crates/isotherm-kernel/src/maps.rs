//! Reads `/proc/PID/maps` and `/proc/PID/smaps` (`proc_pid_maps(5)`). The names in them are bytes, not text.
//!
//! A process chooses the number and the names of its mappings. So the memory that is kept for one process has a bound:
//! equal names are one string, and long names are cut.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use isotherm_core::{AddrRange, FileId, LONGEST_NAME, MappedFile, Mapping, Permissions, end_of};

use crate::hold::HeldFile;

/// The first address of the kernel's half of the address space on x86-64. `[vsyscall]` lies above it.
pub(crate) const KERNEL_SPACE: u64 = 1 << 63;

/// The names of all mappings of a process have at most this many bytes together, each of [`SHORT_NAME`] bytes or less
/// left aside. Further names are cut to that.
const MOST_NAMES: usize = 8 << 20;

/// The length to which further names are cut, in bytes.
const SHORT_NAME: usize = 64;

/// The most bytes of a line that are read. The rest of a longer one, the end of a very long name, is skipped.
const LONGEST_LINE: usize = 64 << 10;

/// Reads of the file at least this many bytes at a time. The kernel hands out about a page at a time anyway.
const BUFFER: usize = 16 << 10;

/// Reads of `smaps` have this many bytes, which is less than the kernel writes about a mapping. It then walks the pages
/// of one mapping at a time and lets the process map memory in between. With larger reads, it walks those of several.
const SMALL_BUFFER: usize = 512;

/// A line of the file.
#[derive(Debug)]
pub(crate) enum Line<'a> {
    /// A mapping, with its name as the kernel writes it: a line feed is `\012`, all other bytes are themselves.
    Mapping(AddrRange, Permissions, Origin, &'a [u8]),
    /// A figure of the mapping before, as `smaps` has them, in bytes.
    Figure(&'a str, u64),
    /// The flags of the mapping before, of two letters each.
    Flags(&'a str),
}

/// Hands out the lines of `file` one after another. Mappings in the kernel's half of the address space are left out,
/// with their figures.
///
/// The kernel writes the file piece by piece. A mapping that grows meanwhile, or becomes one with its neighbour, can
/// have two lines that overlap. Of the second, what the first has said already is left out, and so are its figures,
/// which are about both.
///
/// # Errors
/// The error of read(2). `InvalidData` if a line is not as the kernel writes it.
pub(crate) fn read_lines(file: impl Read, each: impl FnMut(Line<'_>)) -> io::Result<()> {
    read_lines_by(BUFFER, file, each)
}

/// The same, by reads of this many bytes.
fn read_lines_by(size: usize, file: impl Read, mut each: impl FnMut(Line<'_>)) -> io::Result<()> {
    let mut reader = BufReader::with_capacity(size, HeldFile(file));
    let mut line = Vec::new();
    let (mut is_user, mut last_end) = (false, 0);
    while read_line(&mut reader, &mut line)? {
        // Figures and flags begin with a capital letter, mappings with a hexadecimal number in small letters.
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            let parsed = std::str::from_utf8(&line).ok().and_then(figure).ok_or_else(garbage)?;
            if is_user {
                parsed.into_iter().for_each(&mut each);
            }
            continue;
        }
        let (start, end, permissions, mut origin, name) = mapping(&line).ok_or_else(garbage)?;
        let range = AddrRange::new(start.max(last_end), end).filter(|range| range.end() < KERNEL_SPACE);
        is_user = range.is_some_and(|range| range.start() == start);
        if let Some(range) = range {
            last_end = range.end();
            origin.offset = origin.offset.saturating_add(range.start() - start);
            each(Line::Mapping(range, permissions, origin, name));
        }
    }
    Ok(())
}

fn garbage() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is not as the kernel writes it (proc_pid_maps(5))")
}

/// Reads the next line without its line feed. Returns false at the end of the file.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if reader.by_ref().take(LONGEST_LINE as u64).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() == LONGEST_LINE {
        reader.skip_until(b'\n')?;
    }
    Ok(true)
}

/// Where the content of a mapping comes from. All is 0 if it comes from no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// The offset of the mapping in the file, in bytes.
    pub(crate) offset: u64,
    pub(crate) file: FileId,
}

/// The parts of a line such as `7f00-7f10 rw-p 00000000 08:01 17      /bin/x`.
fn mapping(line: &[u8]) -> Option<(u64, u64, Permissions, Origin, &[u8])> {
    let mut parts = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let permissions = text()?.as_bytes();
    let offset = u64::from_str_radix(text()?, 16).ok()?;
    let (major, minor) = text()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let origin = Origin { offset, file: FileId { device, inode: text()?.parse().ok()? } };
    // The name begins after as many spaces as fill the column. It ends with the line.
    let name = parts.next().unwrap_or_default();
    let name = &name[name.iter().position(|byte| *byte != b' ').unwrap_or(name.len())..];
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let [read, write, execute, shared] = *permissions.first_chunk::<4>()?;
    let permissions =
        Permissions { read: read == b'r', write: write == b'w', execute: execute == b'x', shared: shared == b's' };
    Some((number(start)?, number(end)?, permissions, origin, name))
}

/// A line such as `Rss:     12 kB`, `THPeligible:    0` or `VmFlags: rd wr`; `Some(None)` if it is of no interest.
fn figure(line: &str) -> Option<Option<Line<'_>>> {
    let (key, value) = line.split_once(':')?;
    if key == "VmFlags" {
        return Some(Some(Line::Flags(value)));
    }
    let mut words = value.split_ascii_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = if words.next() == Some("kB") { 1024 } else { 1 };
    Some(number.checked_mul(unit).map(|bytes| Line::Figure(key, bytes)))
}

/// The names of mappings. Equal names are one string, also from one reading to the next.
#[derive(Clone, Debug, Default)]
pub struct MappingNames(HashSet<Arc<str>>);

impl MappingNames {
    pub(crate) fn share(&mut self, name: &str) -> Arc<str> {
        match self.0.get(name) {
            Some(known) => Arc::clone(known),
            None => {
                let new: Arc<str> = name.into();
                self.0.insert(Arc::clone(&new));
                new
            }
        }
    }

    /// Forgets the names that nobody else has.
    pub fn tidy(&mut self) {
        self.0.retain(|name| Arc::strong_count(name) > 1);
    }
}

/// A mapping, without its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vma {
    pub(crate) range: AddrRange,
    pub(crate) permissions: Permissions,
    pub(crate) origin: Origin,
}

impl Vma {
    /// The part of it from this address on. `None` if the mapping ends at or below it.
    pub(crate) fn rest_from(mut self, address: u64) -> Option<Self> {
        let start = self.range.start().max(address);
        self.origin.offset = self.origin.offset.saturating_add(start - self.range.start());
        self.range = AddrRange::new(start, self.range.end())?;
        Some(self)
    }
}

/// A mapping and its name.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) vma: Vma,
    pub(crate) name: Arc<str>,
}

impl Entry {
    pub(crate) fn into_mapping(self) -> Mapping {
        let Self { vma: Vma { range, permissions, origin }, name } = self;
        // All anonymous inodes have one number.
        let is_a_file = origin.file.inode != 0 && !name.starts_with("anon_inode:");
        let shift = origin.offset.wrapping_sub(range.start());
        let file = is_a_file.then_some(MappedFile { id: origin.file, shift });
        Mapping { range, permissions, name, node: None, file }
    }
}

/// How many bytes the names of a process may still have. Long names are cut when there is no room.
#[derive(Debug)]
pub(crate) struct NameRoom(usize);

impl Default for NameRoom {
    fn default() -> Self {
        Self(MOST_NAMES)
    }
}

impl NameRoom {
    /// Takes the room of a name of this length, in bytes.
    pub(crate) fn take(&mut self, length: usize) {
        if length > SHORT_NAME + "…".len() {
            self.0 = self.0.saturating_sub(length);
        }
    }

    /// The text of a name, which is cut if there is no room for all of it.
    pub(crate) fn cut<'a>(&mut self, name: &'a [u8]) -> Cow<'a, str> {
        let length = name.len().min(LONGEST_NAME);
        if length > self.0 {
            return end_of(name, SHORT_NAME);
        }
        self.take(length);
        end_of(name, LONGEST_NAME)
    }
}

/// The mappings in `file`, which is as `/proc/PID/maps`. If they are those of `before`, it is that list. A name that is
/// no UTF-8 is as [`text_of`](isotherm_core::text_of) has it. Of a name of more than 4,096 bytes, and of names that
/// have more than 8 MiB together, `…` and the end is kept.
///
/// # Errors
/// The error of read(2). `InvalidData` if a line is not as the kernel writes it.
pub fn read_mappings(
    file: impl Read,
    names: &mut MappingNames,
    before: Option<&Arc<[Mapping]>>,
) -> io::Result<Arc<[Mapping]>> {
    let mut mappings = Vec::with_capacity(before.map_or(0, |before| before.len()));
    each_named(file, names, |range, permissions, origin, name| {
        mappings.push(Entry { vma: Vma { range, permissions, origin }, name }.into_mapping());
    })?;
    match before {
        Some(before) if before[..] == mappings[..] => Ok(Arc::clone(before)),
        _ => Ok(mappings.into()),
    }
}

/// The same mappings, with the facts that show whether a mapping was replaced by another one.
///
/// # Errors
/// As [`read_mappings`].
pub(crate) fn read_entries(file: impl Read, names: &mut MappingNames) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    each_named(file, names, |range, permissions, origin, name| {
        entries.push(Entry { vma: Vma { range, permissions, origin }, name });
    })?;
    Ok(entries)
}

fn each_named(
    file: impl Read,
    names: &mut MappingNames,
    mut each: impl FnMut(AddrRange, Permissions, Origin, Arc<str>),
) -> io::Result<()> {
    let mut room = NameRoom::default();
    read_lines(file, |line| {
        if let Line::Mapping(range, permissions, origin, name) = line {
            each(range, permissions, origin, names.share(&room.cut(name)));
        }
    })
}

/// A mapping whose content can be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// The addresses.
    pub range: AddrRange,
    /// The file that it maps, and the offset of the mapping in it. `None` if it maps no file.
    pub file: Option<(FileId, u64)>,
    /// Its name, as in [`Mapping::name`].
    pub name: Arc<str>,
}

/// The mappings in `file`, which is as `/proc/PID/maps`, whose content can be executed. Of a name of more than 4,096
/// bytes, `…` and the end is kept.
///
/// # Errors
/// The error of read(2). `InvalidData` if a line is not as the kernel writes it.
pub fn read_code_mappings(file: impl Read) -> io::Result<Vec<CodeMapping>> {
    let mut mappings = Vec::new();
    read_lines(file, |line| {
        if let Line::Mapping(range, Permissions { execute: true, .. }, origin, name) = line {
            let file = (origin.file.inode != 0).then_some((origin.file, origin.offset));
            mappings.push(CodeMapping { range, file, name: end_of(name, LONGEST_NAME).into() });
        }
    })?;
    Ok(mappings)
}

/// The memory of a mapping, as `smaps` reports it, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingUse {
    /// The addresses of the mapping.
    pub range: AddrRange,
    /// Resident bytes, without those of hugetlbfs.
    pub resident: u64,
    /// Of these, bytes that were referenced since the referenced bits were cleared.
    pub referenced: u64,
    /// Bytes in swap.
    pub swapped: u64,
    /// Of the resident bytes, those that the process has freed lazily (`MADV_FREE`) and not written since.
    pub lazily_freed: u64,
    /// Bytes of hugetlbfs.
    pub hugetlb: u64,
    /// Whether it is locked in memory (`mlock(2)`).
    pub locked: bool,
    /// Whether its pages are of hugetlbfs, or of a device and without page frame descriptors. `smaps` counts neither.
    pub uncounted: bool,
}

/// The mappings in `file`, which is as `/proc/PID/smaps`, and what memory they have.
///
/// # Errors
/// The error of read(2). `InvalidData` if a line is not as the kernel writes it.
pub fn read_mapping_uses(file: impl Read) -> io::Result<Vec<MappingUse>> {
    let mut uses: Vec<MappingUse> = Vec::new();
    read_lines_by(SMALL_BUFFER, file, |line| match (line, uses.last_mut()) {
        (Line::Mapping(range, ..), _) => uses.push(MappingUse {
            range,
            resident: 0,
            referenced: 0,
            swapped: 0,
            lazily_freed: 0,
            hugetlb: 0,
            locked: false,
            uncounted: false,
        }),
        (Line::Figure(key, bytes), Some(last)) => match key {
            "Rss" => last.resident = bytes,
            "Referenced" => last.referenced = bytes,
            "Swap" => last.swapped = bytes,
            "LazyFree" => last.lazily_freed = bytes,
            "Shared_Hugetlb" | "Private_Hugetlb" => last.hugetlb += bytes,
            _ => {}
        },
        (Line::Flags(flags), Some(last)) => {
            let has = |flag: &str| flags.split_ascii_whitespace().any(|word| word == flag);
            last.locked = has("lo");
            last.uncounted = has("ht") || has("pf");
        }
        (_, None) => {}
    })?;
    Ok(uses)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use isotherm_core::bytes_of;
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8]) -> io::Result<Arc<[Mapping]>> {
        read_mappings(text, &mut MappingNames::default(), None)
    }

    #[test]
    fn names_are_bytes_and_are_kept_as_the_kernel_writes_them() {
        let names: [&[u8]; 8] = [
            b"",
            b"[heap]",
            b"/a b ",
            b"/\xff\xfe\x1b[31m\\012\\x41",
            b"/SYSV",
            b"/SYSV00000000 (deleted)",
            b"[stack:",
            "/Ω\u{202e}".as_bytes(),
        ];
        let mut text = Vec::new();
        for (name, at) in names.iter().zip(1..) {
            text.extend_from_slice(format!("{at}000-{at}800 r-xs 00000000 08:01 17             ").as_bytes());
            text.extend_from_slice(name);
            text.push(b'\n');
        }
        text.extend_from_slice(b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0    [vsyscall]\n");
        let read = read(&text).unwrap();
        assert_eq!(read.iter().map(|mapping| bytes_of(&mapping.name).into_owned()).collect::<Vec<_>>(), names);
        assert_eq!(read[1].range, AddrRange::new(0x2000, 0x2800).unwrap());
        assert_eq!(read[1].permissions, Permissions { read: true, write: false, execute: true, shared: true });
    }

    #[test]
    fn names_that_a_process_gives_its_anonymous_memory_are_shown_as_they_are() {
        // By prctl(PR_SET_VMA_ANON_NAME), of private and of shared memory. The kernel refuses control characters.
        let names =
            ["[anon:dalvik-main space]", "[anon:glibc: malloc]", "[anon:]", "[anon_shmem:ring 1]", "[anon:a]b]"];
        let lines: Vec<String> =
            (1..).zip(names).map(|(at, name)| format!("{at}000-{at}800 rw-p 00000000 00:00 0      {name}\n")).collect();
        let read = read(lines.concat().as_bytes()).unwrap();
        assert_eq!(read.iter().map(Mapping::shown_name).collect::<Vec<_>>(), names);
    }

    #[test]
    fn lines_that_overlap_are_disjoint_mappings() {
        let line = |range: &str, rss: u32| format!("{range} rw-p 00000000 00:00 0 /x\nRss: {rss} kB\n");
        let text = [line("1000-3000", 8), line("1000-5000", 16), line("2000-4000", 8), line("6000-7000", 4)].concat();
        let ranges: Vec<_> = read(text.as_bytes()).unwrap().iter().map(|m| (m.range.start(), m.range.end())).collect();
        assert_eq!(ranges, [(0x1000, 0x3000), (0x3000, 0x5000), (0x6000, 0x7000)]);
        let uses = read_mapping_uses(text.as_bytes()).unwrap();
        assert_eq!(uses.iter().map(|of| of.resident).collect::<Vec<_>>(), [8192, 0, 4096]);
    }

    #[test]
    fn code_is_what_can_be_executed_with_its_place_in_the_file() {
        let text = b"1000-2000 r--p 00000000 fe:00 17 /x\n2000-5000 r-xp 00001000 fe:00 17    /x\n\
                     3000-6000 r-xp 00002000 fe:00 17 /x\n7000-8000 rwxp 00000000 00:00 0 \n";
        let code = read_code_mappings(&text[..]).unwrap();
        let file = FileId { device: (0xfe, 0), inode: 17 };
        assert_eq!(code.iter().map(|c| c.file).collect::<Vec<_>>(), [Some((file, 4096)), Some((file, 0x4000)), None]);
        assert_eq!((code[1].range.start(), &*code[1].name, &*code[2].name), (0x5000, "/x", ""));
    }

    #[test]
    fn garbage_is_an_error_and_never_a_shorter_list() {
        let line = "1000-2000 rw-p 00000000 00:00 0 \n";
        assert_eq!(read(line.as_bytes()).unwrap().len(), 1);
        for bad in ["x", "1000-2000", "1000 rw-p 0 0 0", "1000-2000 rw 0 0 0 ", "Rss: x kB", "\u{0}", "-", " "] {
            let error = read(format!("{line}{bad}\n").as_bytes()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = read(&bytes);
            let _ = read_mapping_uses(&bytes[..]);
        }
    }

    #[test]
    fn mappings_that_have_not_changed_are_the_same_list_and_equal_names_are_one_string() {
        let mut names = MappingNames::default();
        let text = "1000-2000 rw-p 00000000 00:00 0 /x\n2000-3000 r--p 00000000 00:00 0 /x\n";
        let first = read_mappings(text.as_bytes(), &mut names, None).unwrap();
        assert!(Arc::ptr_eq(&first[0].name, &first[1].name));
        let second = read_mappings(text.as_bytes(), &mut names, Some(&first)).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let other = "1000-2000 rw-p 00000000 00:00 0 /x\n";
        let third = read_mappings(other.as_bytes(), &mut names, Some(&first)).unwrap();
        assert!(third.len() == 1 && Arc::ptr_eq(&third[0].name, &first[0].name));
        drop((first, second, third));
        names.tidy();
        assert!(names.0.is_empty());
    }

    #[test]
    fn what_is_kept_of_a_process_has_a_bound() {
        let mut text = Vec::new();
        let long = "d".repeat(4_000);
        for at in 1..=5_000_u64 {
            text.extend_from_slice(format!("{at:x}000-{at:x}800 rw-p 00000000 08:01 17 /{long}/{at}\n").as_bytes());
        }
        text.extend_from_slice(b"fff0000-fff1000 rw-p 00000000 08:01 17 /lib/short\n");
        let mappings = read(&text).unwrap();
        let bytes: usize = mappings.iter().map(|mapping| mapping.name.len()).sum();
        assert!(mappings.len() == 5_001 && bytes < MOST_NAMES + 5_000 * (SHORT_NAME + 3), "{bytes}");
        assert_eq!(&*mappings[0].name, format!("/{long}/1"));
        let cut = &mappings[4_999].name;
        assert!(cut.starts_with("…d") && cut.ends_with("d/5000") && cut.len() == SHORT_NAME + "…".len(), "{cut}");
        assert_eq!(&*mappings[5_000].name, "/lib/short");

        let huge = [b"1000-2000 rw-p 00000000 08:01 17 /".as_slice(), &[b'h'; 200_000], b"\n2000-3000 rw-p 0 0:0 0\n"];
        let mappings = read(&huge.concat()).unwrap();
        assert!(mappings.len() == 2 && mappings[0].name.len() == LONGEST_NAME + "…".len());
    }

    #[test]
    fn the_memory_of_a_mapping_comes_from_its_figures_and_flags() {
        let text = b"1000-5000 rw-p 00000000 00:00 0 /\xff\nSize: 16 kB\nRss:    12 kB\nReferenced:   4 kB\n\
                     Swap: 8 kB\nLazyFree: 4 kB\n\
                     THPeligible:    0\nVmFlags: rd wr lo sd\n\
                     ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\nRss: 4 kB\nVmFlags: ht\n";
        let uses = read_mapping_uses(&text[..]).unwrap();
        let range = AddrRange::new(0x1000, 0x5000).unwrap();
        let (resident, referenced, swapped) = (12 << 10, 4 << 10, 8 << 10);
        let (lazily_freed, hugetlb, locked, uncounted) = (4 << 10, 0, true, false);
        let expected = MappingUse { range, resident, referenced, swapped, lazily_freed, hugetlb, locked, uncounted };
        assert_eq!(uses, [expected]);
    }
}
