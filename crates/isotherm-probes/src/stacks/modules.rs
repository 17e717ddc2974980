//! The unwind tables of the files whose code a process executes.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use framehop::{ExplicitModuleSectionInfo, Module};
use isotherm_core::FileId;
use isotherm_kernel::CodeMapping;
use isotherm_kernel::hold::held;
use object::read::{ReadCache, ReadRef};
use object::{Object as _, ObjectSection as _, ObjectSegment as _};

/// Tables that are longer are not read, in bytes.
const LONGEST_TABLE: u64 = 128 << 20;

/// The bytes of a table. Processes that map the same file share them.
pub(super) type Table = Arc<[u8]>;

/// The unwind tables of files that were read.
#[derive(Debug, Default)]
pub(super) struct UnwindTables(HashMap<FileId, Option<Arc<FileTables>>>);

/// What unwinding needs of a file.
#[derive(Debug)]
struct FileTables {
    segments: Vec<Segment>,
    frames: Option<(Range<u64>, Table)>,
    frame_index: Option<(Range<u64>, Table)>,
    text: Option<Range<u64>>,
    got: Option<Range<u64>>,
}

/// A part of a file that is loaded as code.
#[derive(Debug)]
struct Segment {
    /// The bytes of the file.
    file: Range<u64>,
    /// The address that the file states for the first of them.
    address: u64,
}

impl UnwindTables {
    /// The module at a mapping of process `pid`. `None` if it maps no file that can be read, or none that is ELF.
    pub(super) fn module(&mut self, pid: u32, mapping: &CodeMapping) -> Option<Module<Table>> {
        let (file, offset) = mapping.file?;
        let range = mapping.range.start()..mapping.range.end();
        let read = || {
            // The file that is mapped, whatever is at its path by now.
            let path = format!("/proc/{pid}/map_files/{:x}-{:x}", range.start, range.end);
            FileTables::read(&PathBuf::from(path)).map(Arc::new)
        };
        let tables = self.0.entry(file).or_insert_with(read).clone()?;
        let segment = tables.segments.iter().find(|segment| segment.has_page(offset))?;
        let stated = segment.address.wrapping_add(offset).wrapping_sub(segment.file.start);
        let bias = range.start.wrapping_sub(stated);
        let section = |section: &Option<(Range<u64>, Table)>| section.clone().unzip();
        let (eh_frame_svma, eh_frame) = section(&tables.frames);
        let (eh_frame_hdr_svma, eh_frame_hdr) = section(&tables.frame_index);
        let sections = ExplicitModuleSectionInfo {
            text_svma: tables.text.clone(),
            got_svma: tables.got.clone(),
            eh_frame_svma,
            eh_frame,
            eh_frame_hdr_svma,
            eh_frame_hdr,
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(mapping.name.to_string(), range, bias, sections))
    }

    /// Forgets the files.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The number of files.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Segment {
    /// Whether the page at this offset in the file is loaded as a part of it. A segment may begin within a page.
    fn has_page(&self, offset: u64) -> bool {
        (self.file.start & !(isotherm_core::PAGE_SIZE - 1)..self.file.end).contains(&offset)
    }
}

impl FileTables {
    /// Reads the file. It is not mapped: the process may cut it short meanwhile.
    fn read(path: &PathBuf) -> Option<Self> {
        // The kernel finds the mapping to which the path leads.
        let cache = ReadCache::new(held(|| File::open(path)).0.ok()?);
        let file = object::File::parse(&cache).ok()?;
        // The same page of the file may also be loaded as a part of another segment, at another address.
        let code = file.segments().filter(|segment| segment.permissions().executable());
        let segments = code.map(|segment| {
            let (start, size) = segment.file_range();
            Segment { file: start..start.saturating_add(size), address: segment.address() }
        });
        Some(Self {
            segments: segments.collect(),
            frames: table(&file, ".eh_frame"),
            frame_index: table(&file, ".eh_frame_hdr"),
            text: addresses(&file, ".text"),
            got: addresses(&file, ".got"),
        })
    }
}

/// The addresses that the file states for a section.
fn addresses<'a>(file: &object::File<'a, impl ReadRef<'a>>, name: &str) -> Option<Range<u64>> {
    let section = file.section_by_name(name)?;
    Some(section.address()..section.address().saturating_add(section.size()))
}

/// The addresses and the bytes of a section.
fn table<'a>(file: &object::File<'a, impl ReadRef<'a>>, name: &str) -> Option<(Range<u64>, Table)> {
    let section = file.section_by_name(name).filter(|section| section.size() <= LONGEST_TABLE)?;
    Some((addresses(file, name)?, section.data().ok()?.into()))
}
