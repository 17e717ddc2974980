//! The page cache of files: which pages are in memory, and how idle they are where the kernel tracks that.
//!
//! Page cache that no process maps is accessed by system calls, of which page tables know nothing. Idle page tracking
//! knows of both. Without it, no page can be observed: it is known to be present, and since when at most, but not
//! whether anybody reads it. There are no samples.

use isotherm_core::survey::{BLOCK_SIZE, BlockPages, ClearPages, PageBits, Rest, Survey, SurveyPart};
use isotherm_core::{AccessProbe, AddrRange, BoxError, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace};
use isotherm_kernel::page_cache::{FileReader, FileTable};
use rustix::io::Errno;

use crate::idle::{IdleError, IdleProbe};

/// Surveys the page cache of files.
#[derive(Debug)]
pub struct FilesProbe {
    idle: Option<IdleProbe>,
    cached: CachedPages,
}

/// The survey that finds which pages are in memory, and no more.
#[derive(Debug)]
struct CachedPages {
    table: FileTable,
    /// The blocks of the current survey.
    starts: Vec<u64>,
    reader: FileReader,
}

impl FilesProbe {
    /// A probe of the files of `table`, which uses idle page tracking.
    ///
    /// # Errors
    /// If idle page tracking does not work here.
    pub fn open(table: FileTable) -> Result<Self, IdleError> {
        let idle = IdleProbe::open()?.with_files(table.clone());
        Ok(Self { idle: Some(idle), ..Self::without_ages(table) })
    }

    /// A probe that finds only which pages are in memory.
    pub fn without_ages(table: FileTable) -> Self {
        let reader = FileReader::new(table.clone());
        Self { idle: None, cached: CachedPages { table, starts: Vec::new(), reader } }
    }
}

impl AccessProbe for FilesProbe {
    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        self.idle.as_mut().map_or(Ok(()), |idle| idle.update(targets))
    }

    fn has_samples(&self) -> bool {
        false
    }

    fn clears(&self) -> u64 {
        self.idle.as_ref().map_or(0, AccessProbe::clears)
    }

    fn survey(&mut self) -> Option<&mut dyn Survey> {
        match &mut self.idle {
            Some(idle) => idle.survey(),
            None => Some(&mut self.cached),
        }
    }
}

impl Survey for CachedPages {
    fn read(&mut self, target: &TargetSpace, part: SurveyPart, blocks: &mut Vec<BlockPages>) -> Result<Rest, BoxError> {
        if part.from == 0 {
            self.starts = self.table.blocks();
        }
        let left = &self.starts[self.starts.partition_point(|start| *start < part.from)..];
        let (now, later) = left.split_at(part.most.min(left.len()));
        let mut mappings = target.mappings.iter().peekable();
        for &start in now {
            let Some(block) = AddrRange::new(start, start + BLOCK_SIZE) else { continue };
            let mut present = PageBits::NONE;
            let read = self.reader.resident(block, |addr| present.insert(((addr - start) / PAGE_SIZE) as usize));
            match read {
                // A file may refuse to be mapped.
                Ok(()) | Err(Errno::ACCESS | Errno::PERM | Errno::NODEV) => {}
                Err(errno) => return Err(std::io::Error::from(errno).into()),
            }
            // Files that have joined since are no part of the target yet.
            let mut known = PageBits::NONE;
            while mappings.next_if(|mapping| mapping.range.end() <= start).is_some() {}
            let of_block = mappings.clone().take_while(|mapping| mapping.range.start() < block.end());
            of_block.for_each(|mapping| known |= PageBits::within(start, mapping.range));
            let present = present & known;
            if !present.is_empty() {
                blocks.push(BlockPages {
                    start,
                    present,
                    accessed: present,
                    unobservable: present,
                    ..BlockPages::default()
                });
            }
        }
        self.reader.close();
        Ok(Rest { from: later.first().copied(), blocks: later.len() })
    }

    fn clear(&mut self, _: TargetId, blocks: &mut Vec<ClearPages>) -> Result<u64, BoxError> {
        blocks.clear();
        Ok(0)
    }
}

/// What checks before an action whether pages of files were accessed, where that cannot be found out: it takes all of
/// them for accessed.
#[derive(Debug)]
pub struct NoLook;

impl AccessProbe for NoLook {
    fn update(&mut self, _: &[TargetSpace]) -> Result<(), BoxError> {
        Ok(())
    }

    fn read(&mut self, _: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        answers.fill(Observation::Accessed);
        Ok(())
    }

    fn clears(&self) -> u64 {
        0
    }
}
