//! The notes that describe the USDT probes of an ELF file.
//!
//! Their form is that of <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>: the section
//! `.note.stapsdt` has notes of the owner `stapsdt` and the type 3. Each has three addresses and three strings: where
//! the probe is, the base of all of them, and the counter that says whether somebody watches; the provider, the name,
//! and the arguments.

use std::fs::File;

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef};

use super::UsdtProbe;
use super::argument::Argument;

/// The section of the notes.
const SECTION: &[u8] = b".note.stapsdt";
/// The section whose address is the base of the notes. Whatever moves the sections later moves it as well.
const BASE_SECTION: &[u8] = b".stapsdt.base";
/// Notes that are longer together are not read, in bytes.
const LONGEST_SECTION: u64 = 16 << 20;

/// The owner of the notes.
const OWNER: &[u8] = b"stapsdt";
/// Their type.
const TYPE: u32 = 3;
/// The number of program headers that stands for a larger one, which is elsewhere.
const MANY_SEGMENTS: u16 = 0xffff;

/// A place at which a program executes a USDT probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) probe: UsdtProbe,
    /// The offset of the instruction in the file.
    pub(super) offset: usize,
    /// The offset of the counter of those who watch, in the file. 0 if there is none.
    pub(super) counter: usize,
    /// Where the first argument is.
    pub(super) argument: Argument,
}

/// The USDT probes of a file; none if it is no ELF file of x86-64, or not as it should be. The file is read and not
/// mapped: a process may cut it short meanwhile.
pub(super) fn read(file: File) -> Vec<Place> {
    let cache = ReadCache::new(file);
    places(&cache).unwrap_or_default()
}

/// The USDT probes of a program, each once for each place at which the program has it. The list is empty if the file is
/// not a program of x86-64.
pub fn usdt_probes_of(program: File) -> Vec<UsdtProbe> {
    read(program).into_iter().map(|place| place.probe).collect()
}

/// The offset in its file of the first instruction of a program.
pub(super) fn entry(program: File) -> Option<usize> {
    let cache = ReadCache::new(program);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, &cache).ok()?;
    let segments = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    segments.map(|segment| Segment::new(segment, endian)).find_map(|segment| segment.offset(header.e_entry(endian)))
}

fn places<'a>(data: impl ReadRef<'a>) -> Option<Vec<Place>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    // With these, a number that the file states elsewhere has no bound.
    if header.e_machine(endian) != elf::EM_X86_64 || header.e_shnum(endian) == 0 {
        return None;
    }
    if header.e_phnum(endian) == MANY_SEGMENTS || header.e_shstrndx(endian) == elf::SHN_XINDEX {
        return None;
    }
    let sections = header.sections(endian, data).ok()?;
    let (_, section) = sections.section_by_name(endian, SECTION)?;
    if section.sh_size(endian) > LONGEST_SECTION {
        return None;
    }
    let mut notes = section.notes(endian, data).ok()??;
    let base = sections.section_by_name(endian, BASE_SECTION).map(|(_, section)| section.sh_addr(endian));
    let segments = header.program_headers(endian, data).ok()?;
    let segments = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
    let segments: Vec<Segment> = segments.map(|segment| Segment::new(segment, endian)).collect();
    let place = |note: Note<'_>| {
        let moved = base.map_or(0, |base| base.wrapping_sub(note.base));
        let code = segments.iter().find_map(|segment| segment.offset(note.address.wrapping_add(moved)))?;
        let counter = match note.counter {
            0 => 0,
            counter => segments.iter().find_map(|segment| segment.offset(counter.wrapping_add(moved)))?,
        };
        let probe = UsdtProbe::new(note.provider, note.name)?;
        Some(Place { probe, offset: code, counter, argument: Argument::first(note.arguments) })
    };
    let mut found = Vec::new();
    while let Ok(Some(note)) = notes.next() {
        if note.name() == OWNER && note.n_type(endian).0 == TYPE {
            found.extend(Note::read(note.desc()).and_then(place));
        }
    }
    Some(found)
}

/// A part of a file that is loaded.
struct Segment {
    address: u64,
    offset: u64,
    length: u64,
}

impl Segment {
    fn new(header: &elf::ProgramHeader64<Endianness>, endian: Endianness) -> Self {
        Self { address: header.p_vaddr(endian), offset: header.p_offset(endian), length: header.p_filesz(endian) }
    }

    /// The offset in the file of what is loaded at this address.
    fn offset(&self, address: u64) -> Option<usize> {
        let within = address.checked_sub(self.address).filter(|within| *within < self.length)?;
        usize::try_from(self.offset.checked_add(within)?).ok()
    }
}

/// What a note says.
#[derive(Debug, PartialEq, Eq)]
struct Note<'a> {
    address: u64,
    base: u64,
    counter: u64,
    provider: &'a str,
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Note<'a> {
    /// Reads the contents of a note.
    fn read(contents: &'a [u8]) -> Option<Self> {
        let ([address, base, counter], strings) = contents.split_first_chunk::<24>().map(|(addresses, strings)| {
            let address = |at: usize| addresses[at..].first_chunk().copied().map_or(0, u64::from_le_bytes);
            ([address(0), address(8), address(16)], strings)
        })?;
        let mut strings = strings.split(|byte| *byte == 0);
        let mut string = || std::str::from_utf8(strings.next()?).ok();
        let (provider, name) = (string()?, string()?);
        Some(Self { address, base, counter, provider, name, arguments: string().unwrap_or_default() })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_three_addresses_and_three_strings() {
        let mut contents: Vec<u8> = [0x1130_u64, 0x2000, 0x4010].into_iter().flat_map(u64::to_le_bytes).collect();
        contents.extend(b"isotherm\0mark\08@%rdi\0");
        let note = Note::read(&contents).unwrap();
        assert_eq!((note.address, note.base, note.counter), (0x1130, 0x2000, 0x4010));
        assert_eq!((note.provider, note.name, note.arguments), ("isotherm", "mark", "8@%rdi"));
        assert_eq!(Note::read(&contents[..32]), None, "it ends with the provider");
        assert_eq!(Note::read(&contents[..23]), None);
        contents[24] = 0xff;
        assert_eq!(Note::read(&contents), None);
    }

    #[test]
    fn an_address_has_an_offset_in_the_file_if_it_is_loaded_from_there() {
        let segment = Segment { address: 0x5000, offset: 0x4000, length: 0x100 };
        assert_eq!(segment.offset(0x5010), Some(0x4010));
        assert_eq!((segment.offset(0x4fff), segment.offset(0x5100)), (None, None));
        assert_eq!(Segment { offset: u64::MAX, ..segment }.offset(0x5001), None);
    }

    #[test]
    fn what_is_no_program_has_no_probes() {
        use std::io::{Seek, Write};
        let own = std::fs::read("/proc/self/exe").unwrap();
        for contents in [&b""[..], b"#!/bin/sh\n", &own[..64], &own[..own.len().min(4096)]] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(contents).unwrap();
            file.rewind().unwrap();
            assert_eq!(read(file), []);
        }
    }
}
