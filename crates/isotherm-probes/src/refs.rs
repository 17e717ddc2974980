//! The probe `refs`: watches processes with `/proc/PID/clear_refs` and `/proc/PID/smaps`.
//!
//! An ordinary user can watch a process of their own with it. It surveys mappings, or samples them. Its limits are:
//!
//! - A clear applies to the whole process. A read shows how many bytes of each mapping were referenced, but not which.
//!   The survey tells the bytes. For a sample, a mapping counts as accessed if any page of it was referenced.
//! - Each survey, and each round of samples, walks all page tables of the process twice. The cost grows with the size
//!   of the process; a longer interval lowers it.
//! - The kernel does not flush the TLB when it clears. A small mapping whose translations all stay in the TLB can look
//!   idle although it is in use.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::PathBuf;

use isotherm_core::survey::{MappingRead, MappingSurvey};
use isotherm_core::{
    AccessProbe, AddrRange, BoxError, Granularity, Observation, PAGE_SIZE, Sample, TargetId, TargetSpace,
};
use procfs::FromBufRead;
use procfs::process::{MemoryMap, MemoryMaps, VmFlags};
use thiserror::Error;

/// Written to `/proc/PID/clear_refs`, this clears the referenced bits of all pages (`proc(5)`).
const CLEAR_ALL: &[u8] = b"1";

/// Why `refs` cannot watch a process.
#[derive(Debug, Error)]
pub enum RefsError {
    /// A file of the process does not exist, or opening it is not permitted.
    #[error("{path} cannot be opened ({})", fix(source))]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of open(2).
        source: io::Error,
    },
    /// A file of the process cannot be read or written.
    #[error("{path} cannot be used")]
    Use {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The target is not a process.
    #[error("{0} is not a process, and the refs probe can only watch processes (use another probe)")]
    NotAProcess(TargetId),
    /// The referenced bits are wrong.
    #[error("a page was {0}: this kernel does not keep referenced bits as proc(5) says (use another probe)")]
    Untrue(&'static str),
}

fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "has the process ended, or has the kernel no CONFIG_PROC_PAGE_MONITOR?",
        _ => "watch a process of your own, or run isotherm as root",
    }
}

/// Reads from `clear_refs` and `smaps` which mappings were accessed.
#[derive(Debug, Default)]
pub struct RefsProbe {
    /// Whether mappings are surveyed, and not sampled.
    surveys: bool,
    targets: Vec<Target>,
    /// The number of mappings with referenced pages that were cleared.
    clears: u64,
}

#[derive(Debug)]
struct Target {
    id: TargetId,
    pid: u32,
    clear_refs: Option<File>,
    /// The result of the last read for each mapping, sorted by address.
    mappings: Vec<(AddrRange, Observation)>,
}

impl RefsProbe {
    /// A probe without targets, which samples mappings.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same probe, which surveys mappings instead if `surveys` is true. It cannot do both, because a clear for one
    /// takes away what the other would read.
    #[must_use]
    pub fn with_survey(self, surveys: bool) -> Self {
        Self { surveys, ..self }
    }

    /// Tests the probe on this process: clears the referenced bits, touches pages, and reads the bits again.
    ///
    /// # Errors
    /// If a file cannot be opened or used, or if the touched pages are not reported as referenced.
    pub fn check() -> Result<(), RefsError> {
        let me = std::process::id();
        let mut clear_refs = open(me, "clear_refs")?;
        // These pages are new. The first touch of a page sets its referenced bit, whatever the TLB holds.
        let mut memory = vec![0_u8; 8 << 20];
        clear_refs.write_all(CLEAR_ALL).map_err(|source| RefsError::Use { path: path(me, "clear_refs"), source })?;
        for byte in memory.iter_mut().step_by(4096) {
            *std::hint::black_box(byte) += 1;
        }
        let addr = memory.as_ptr() as u64 + memory.len() as u64 / 2;
        let mappings = observe(me).map_err(|source| RefsError::Use { path: path(me, "smaps"), source })?;
        match mappings.iter().find(|(range, _)| range.contains(addr)) {
            Some((_, Observation::Accessed)) => Ok(()),
            _ => Err(RefsError::Untrue("touched, but is not shown as referenced")),
        }
    }
}

impl AccessProbe for RefsProbe {
    fn granularity(&self) -> Granularity {
        Granularity::Mapping
    }

    fn has_samples(&self) -> bool {
        !self.surveys
    }

    fn mapping_survey(&mut self) -> Option<&mut dyn MappingSurvey> {
        if self.surveys { Some(self) } else { None }
    }

    fn update(&mut self, targets: &[TargetSpace]) -> Result<(), BoxError> {
        let mut known = std::mem::take(&mut self.targets);
        for space in targets {
            if let Some(i) = known.iter().position(|target| target.id == space.id) {
                self.targets.push(known.swap_remove(i));
                continue;
            }
            let pid = space.id.pid().ok_or(RefsError::NotAProcess(space.id))?;
            let clear_refs = match open(pid, "clear_refs") {
                Ok(file) => Some(file),
                // The process has ended since the targets were updated.
                Err(RefsError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error.into()),
            };
            self.targets.push(Target { id: space.id, pid, clear_refs, mappings: Vec::new() });
        }
        Ok(())
    }

    fn clear(&mut self, _samples: &[Sample]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            // The next update notices that the target has ended.
            if let Some(file) = &mut target.clear_refs
                && file.write_all(CLEAR_ALL).is_err()
            {
                target.clear_refs = None;
            }
        }
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            target.mappings = match target.clear_refs {
                Some(_) => observe(target.pid).unwrap_or_default(),
                None => Vec::new(),
            };
            self.clears += target.mappings.iter().filter(|m| m.1 == Observation::Accessed).count() as u64;
        }
        for (sample, answer) in samples.iter().zip(answers) {
            let target = self.targets.iter().find(|target| target.id == sample.target);
            *answer = target.map_or(Observation::Idle, |target| target.answer(sample.addr));
        }
        Ok(())
    }

    fn clears(&self) -> u64 {
        self.clears
    }
}

impl MappingSurvey for RefsProbe {
    fn read_and_clear(&mut self, space: &TargetSpace) -> Result<Vec<MappingRead>, BoxError> {
        let known = self.targets.iter_mut().find(|target| target.id == space.id);
        let Some((target, file)) = known.and_then(|target| Some((target.pid, target.clear_refs.as_mut()?))) else {
            return Ok(Vec::new());
        };
        // The next update notices that the target has ended.
        let Ok(maps) = smaps(target) else { return Ok(Vec::new()) };
        if file.write_all(CLEAR_ALL).is_err() {
            return Ok(Vec::new());
        }
        let read = maps.iter().filter_map(read).filter(|read| read.present > 0 || read.swapped > Some(0));
        let read: Vec<MappingRead> = read.collect();
        self.clears += read.iter().map(|read| read.accessed / PAGE_SIZE).sum::<u64>();
        Ok(read)
    }
}

/// What `smaps` says about the memory of a mapping.
fn read(map: &MemoryMap) -> Option<MappingRead> {
    let range = isotherm_kernel::mapping(map)?.range;
    let bytes = |key: &str| map.extension.map.get(key).copied().unwrap_or_default();
    let resident = bytes("Rss");
    // The resident bytes do not count the pages of hugetlbfs. No field counts the memory of devices.
    let hugetlb = bytes("Shared_Hugetlb") + bytes("Private_Hugetlb");
    let accessed = bytes("Referenced").min(resident);
    // Unlike the page tables, `Swap` counts shared memory that is in swap (Linux Documentation/filesystems/proc.rst).
    let swapped = Some(bytes("Swap"));
    Some(MappingRead { range, present: resident + hugetlb, accessed, unobservable: hugetlb, swapped })
}

impl Target {
    fn answer(&self, addr: u64) -> Observation {
        let passed = self.mappings.partition_point(|(range, _)| range.end() <= addr);
        match self.mappings.get(passed) {
            Some(&(range, observation)) if range.contains(addr) => observation,
            _ => Observation::Idle,
        }
    }
}

/// Reads from `smaps` which mappings were referenced since the last clear.
fn observe(pid: u32) -> io::Result<Vec<(AddrRange, Observation)>> {
    let maps = smaps(pid)?;
    let seen = |map: &MemoryMap| {
        let range = isotherm_kernel::mapping(map)?.range;
        // smaps does not count the pages of hugetlbfs, nor pages without a page frame descriptor (device memory).
        let observation = if map.extension.vm_flags.intersects(VmFlags::HT | VmFlags::PF) {
            Observation::Unobservable
        } else if map.extension.map.get("Referenced").is_some_and(|&bytes| bytes > 0) {
            Observation::Accessed
        } else {
            Observation::Idle
        };
        Some((range, observation))
    };
    Ok(maps.iter().filter_map(seen).collect())
}

fn smaps(pid: u32) -> io::Result<MemoryMaps> {
    let mut text = Vec::new();
    File::open(path(pid, "smaps"))?.read_to_end(&mut text)?;
    MemoryMaps::from_buf_read(BufReader::new(&text[..])).map_err(io::Error::other)
}

fn open(pid: u32, name: &str) -> Result<File, RefsError> {
    let path = path(pid, name);
    File::options().write(true).open(&path).map_err(|source| RefsError::Open { path, source })
}

fn path(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}
