//! The probe `refs`: watches processes with `/proc/PID/clear_refs` and `/proc/PID/smaps`.
//!
//! An ordinary user can watch a process of their own with it. It surveys mappings, or samples them. Its limits are:
//!
//! - A clear applies to the whole process. A read shows how many bytes of each mapping were referenced, but not which.
//!   The survey reports these bytes. For a sample, a mapping counts as accessed if any page of it was referenced.
//! - Each survey, and each round of samples, walks all page tables of the process twice. The cost grows with the size
//!   of the process; a longer interval lowers it.
//! - While the kernel walks page tables, the process cannot map or unmap memory, and some of its page faults wait. A
//!   clear of all memory, and a read of one mapping, cannot be split. The probe leaves a process out if such a call is
//!   [expected](expected_pause) to take more than [`MOST_PAUSE`], or than [another bound](RefsProbe::with_most_pause).
//! - The kernel does not flush the TLB when it clears referenced bits. A small mapping whose translations all stay in
//!   the TLB can look idle although it is in use.

mod views;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use isotherm_core::survey::{Kinds, MappingRead, MappingSurvey, Unseen};
use isotherm_core::{
    AccessProbe, AddrRange, BoxError, Figures, Granularity, Mapping, Observation, PAGE_SIZE, Sample, TargetId,
    TargetSpace, units,
};
use isotherm_kernel::hold::held;
use isotherm_kernel::{MappingUse, Pidfd, Unreadable, memory_id, read_mapping_uses, resident};
use rustix::io::Errno;
use thiserror::Error;

use crate::elsewhere::AccessedElsewhere;

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
    /// A call would keep the only target from mapping memory for too long.
    #[error("{}", too_long(*.0, *.1))]
    Pause(TargetId, Duration),
    /// The referenced bits are wrong.
    #[error("a page was {0}: this kernel does not keep referenced bits as proc(5) says (use another probe)")]
    Untrue(&'static str),
}

/// No call is made that is expected to keep a target from mapping memory for longer, unless that is allowed.
pub const MOST_PAUSE: Duration = Duration::from_millis(100);

const GIB: f64 = (1 << 30) as f64;

/// How long the kernel is expected to hold the memory map of a process for one call: for a read of its largest mapping
/// in `smaps`, 20 ms for each GiB that is resident, or for a clear of all of its memory, 8 ms for each GiB and 1 µs for
/// each mapping, by which takes longer (Linux 6.18 on a virtual machine; `bench/latency`). Huge pages take less.
pub fn expected_pause(resident: u64, mappings: &[Mapping]) -> Duration {
    let largest = mappings.iter().map(|mapping| mapping.range.size()).max().unwrap_or_default().min(resident);
    let read = largest as f64 / GIB * 20e-3;
    let clear = resident as f64 / GIB * 8e-3 + mappings.len() as f64 * 1e-6;
    Duration::from_secs_f64(read.max(clear))
}

fn too_long(target: TargetId, pause: Duration) -> String {
    let pause = units::duration(Duration::from_millis(pause.as_millis() as u64));
    format!(
        "one call of the probe refs would keep {target} from mapping memory for about {pause}, by its size, which is \
         too long (use the probe bpf, or allow it by --allow-pauses)"
    )
}

fn fix(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "has the process ended, or has the kernel no CONFIG_PROC_PAGE_MONITOR?",
        _ => "watch a process of your own, or run isotherm as root",
    }
}

/// Reads from `clear_refs` and `smaps` which mappings were accessed.
#[derive(Debug)]
pub struct RefsProbe {
    /// Whether mappings are surveyed, and not sampled.
    surveys: bool,
    /// No call is made that is expected to keep a target from mapping memory for longer.
    most_pause: Duration,
    targets: Vec<RefsTarget>,
    /// The number of mappings with referenced pages that were cleared.
    clears: u64,
}

#[derive(Debug)]
struct RefsTarget {
    id: TargetId,
    pid: u32,
    state: State,
    /// The result of the last read for each mapping, sorted by address.
    mappings: Vec<(AddrRange, Observation)>,
    /// The result of the last survey.
    surveyed: Vec<MappingRead>,
    /// What others access, which referenced bits do not tell.
    elsewhere: AccessedElsewhere,
}

impl Default for RefsProbe {
    fn default() -> Self {
        Self { surveys: false, most_pause: MOST_PAUSE, targets: Vec::new(), clears: 0 }
    }
}

/// Whether a target can be watched.
#[derive(Debug)]
enum State {
    /// `clear_refs` of the thread with this ID below `/proc` is open.
    Open { clear_refs: File, process: Pidfd, id: u32 },
    /// The target has ended. The next update of the targets leaves it out.
    Ended,
    /// A call would take so long. Its memory is unobservable until the next update, which looks again.
    TooLarge(Duration),
    /// It could not be opened, read or cleared. Its memory is unobservable until the next update, which opens it again.
    Failed,
}

impl State {
    /// Opens a process.
    ///
    /// # Errors
    /// Fails if access is not permitted.
    fn open(pid: u32) -> Result<Self, RefsError> {
        let process = match Pidfd::open(pid) {
            Ok(process) => process,
            Err(Errno::SRCH | Errno::INVAL | Errno::NOENT) => return Ok(Self::Ended),
            Err(_) => return Ok(Self::Failed),
        };
        let id = memory_id(Path::new("/"), pid);
        match open(id, "clear_refs") {
            Ok(clear_refs) => Ok(Self::Open { clear_refs, process, id }),
            Err(RefsError::Open { path, source }) => match Unreadable::new(source, &process) {
                Unreadable::Ended => Ok(Self::Ended),
                Unreadable::ForNow(_) => Ok(Self::Failed),
                Unreadable::ForGood(source) => Err(RefsError::Open { path, source }),
            },
            Err(error) => Err(error),
        }
    }

    /// Whether the process is to be opened again: it could not be used, or the thread whose file is open has ended and
    /// others go on.
    fn is_stale(&self, pid: u32) -> bool {
        match self {
            Self::Open { id, .. } => *id != memory_id(Path::new("/"), pid),
            Self::Ended => false,
            Self::Failed | Self::TooLarge(_) => true,
        }
    }

    /// Does something with the process. After an error, the state says what it means.
    fn with<T>(&mut self, act: impl FnOnce(&mut File) -> io::Result<T>) -> Option<T> {
        let Self::Open { clear_refs, process, .. } = self else { return None };
        match act(clear_refs) {
            Ok(done) => Some(done),
            Err(error) => {
                *self = match Unreadable::new(error, process) {
                    Unreadable::Ended => Self::Ended,
                    Unreadable::ForNow(_) | Unreadable::ForGood(_) => Self::Failed,
                };
                None
            }
        }
    }
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

    /// The same probe, which makes calls that are expected to keep a target from mapping memory for so long.
    /// [`MOST_PAUSE`] is the default; `Duration::MAX` watches processes of any size.
    #[must_use]
    pub fn with_most_pause(self, most_pause: Duration) -> Self {
        Self { most_pause, ..self }
    }

    /// Opens a target, if it is to be opened and is not too large.
    ///
    /// # Errors
    /// Fails if access is not permitted, or if it is too large.
    fn open(&self, target: &mut RefsTarget, mappings: &[Mapping]) -> Result<(), RefsError> {
        target.open_again()?;
        if self.most_pause == Duration::MAX || !matches!(target.state, State::Open { .. }) {
            return Ok(());
        }
        let pause = expected_pause(resident(Path::new("/"), target.pid).unwrap_or_default(), mappings);
        if pause <= self.most_pause {
            return Ok(());
        }
        target.state = State::TooLarge(pause);
        Err(RefsError::Pause(target.id, pause))
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
            let mut target = match known.iter().position(|target| target.id == space.id) {
                Some(i) => known.swap_remove(i),
                None => RefsTarget::new(space)?,
            };
            target.elsewhere.update(Path::new("/"), space.id, &space.mappings, true);
            match self.open(&mut target, &space.mappings) {
                // One of several targets does not end the run of the others. Its memory is unobservable.
                Err(error) if targets.len() == 1 => return Err(error.into()),
                _ => self.targets.push(target),
            }
        }
        Ok(())
    }

    fn join(&mut self, joined: &[TargetSpace]) -> Result<(), BoxError> {
        for space in joined {
            let mut target = RefsTarget::new(space)?;
            target.elsewhere.update(Path::new("/"), space.id, &space.mappings, true);
            // One that cannot be opened is opened again at the next update.
            let _ = self.open(&mut target, &space.mappings);
            self.targets.push(target);
        }
        Ok(())
    }

    fn clear(&mut self, _samples: &[Sample]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            target.state.with(|file| held(|| file.write_all(CLEAR_ALL)).0);
        }
        Ok(())
    }

    fn read(&mut self, samples: &[Sample], answers: &mut [Observation]) -> Result<(), BoxError> {
        for target in &mut self.targets {
            let pid = target.pid;
            target.mappings = target.state.with(|_| observe(pid)).unwrap_or_default();
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
        let Some(target) = self.targets.iter_mut().find(|target| target.id == space.id) else {
            return Ok(Vec::new());
        };
        let pid = target.pid;
        target.elsewhere.update(Path::new("/"), space.id, &space.mappings, true);
        let maps = target.state.with(|file| {
            let maps = smaps(pid)?;
            held(|| file.write_all(CLEAR_ALL)).0?;
            Ok(maps)
        });
        let Some(maps) = maps else {
            // Memory that cannot be read at the moment is not idle. It is what it was, and cannot be observed.
            let unobserved = |read: &MappingRead| {
                let unobservable = read.figures.present;
                MappingRead { figures: Figures { touched: 0, unobservable, ..read.figures }, ..*read }
            };
            let is_there = matches!(target.state, State::Failed | State::TooLarge(_));
            return Ok(if is_there { target.surveyed.iter().map(unobserved).collect() } else { Vec::new() });
        };
        let mut read: Vec<MappingRead> = maps.iter().map(|map| read(map, &target.elsewhere)).collect();
        views::count_once(pid, &space.mappings, &mut read);
        read.retain(|read| read.figures.kept() + read.mapped_again + read.kinds.lazily_freed > 0);
        self.clears += read.iter().map(|read| read.figures.touched / PAGE_SIZE).sum::<u64>();
        target.surveyed.clone_from(&read);
        Ok(read)
    }

    fn left_out(&self) -> Option<String> {
        self.targets.iter().find_map(|target| match target.state {
            State::TooLarge(pause) => Some(format!("{} is not observed: {}", target.id, too_long(target.id, pause))),
            State::Open { .. } | State::Ended | State::Failed => None,
        })
    }
}

/// What `smaps` says about the memory of a mapping. What others access of it cannot be observed.
fn read(map: &MappingUse, elsewhere: &AccessedElsewhere) -> MappingRead {
    // Of the freed pages, some may have been read since.
    let lazily_freed = map.lazily_freed.min(map.resident - map.referenced.min(map.resident));
    let mut kinds = Kinds { lazily_freed, ..Kinds::default() };
    kinds.unseen[Unseen::Hugetlb] = map.hugetlb;
    let mut observable = map.resident - lazily_freed;
    for (part, who) in elsewhere.within(map.range) {
        let bytes = part.size().min(observable);
        kinds.unseen[who] += bytes;
        observable -= bytes;
    }
    MappingRead {
        kinds,
        range: map.range,
        figures: Figures {
            // The resident bytes do not count the pages of hugetlbfs. No field counts the memory of devices.
            present: map.resident + map.hugetlb - lazily_freed,
            touched: map.referenced.min(observable),
            unobservable: kinds.unseen.sum(),
            ..Figures::unknown()
        }
        // Unlike the page tables, `Swap` counts shared memory that is in swap (Linux
        // Documentation/filesystems/proc.rst).
        .with_swapped(Some(map.swapped)),
        mapped_again: 0,
    }
}

impl RefsTarget {
    /// A target that is not open.
    fn new(space: &TargetSpace) -> Result<Self, RefsError> {
        let pid = space.id.pid().ok_or(RefsError::NotAProcess(space.id))?;
        Ok(Self {
            id: space.id,
            pid,
            state: State::Failed,
            mappings: Vec::new(),
            surveyed: Vec::new(),
            elsewhere: AccessedElsewhere::default(),
        })
    }

    /// Opens the process, if it is to be opened again.
    ///
    /// # Errors
    /// Fails if access is not permitted.
    fn open_again(&mut self) -> Result<(), RefsError> {
        if self.state.is_stale(self.pid) {
            self.state = State::Failed;
            self.state = State::open(self.pid)?;
        }
        Ok(())
    }

    fn answer(&self, addr: u64) -> Observation {
        if let State::Failed | State::TooLarge(_) = self.state {
            return Observation::Unobservable;
        }
        let passed = self.mappings.partition_point(|(range, _)| range.end() <= addr);
        match self.mappings.get(passed) {
            // Nobody is seen to access it, but others may.
            Some(&(range, Observation::Idle))
                if range.contains(addr) && self.elsewhere.within(range).next().is_some() =>
            {
                Observation::Unobservable
            }
            Some(&(range, observation)) if range.contains(addr) => observation,
            _ => Observation::Idle,
        }
    }
}

/// Reads from `smaps` which mappings were referenced since the last clear.
fn observe(pid: u32) -> io::Result<Vec<(AddrRange, Observation)>> {
    let seen = |map: MappingUse| {
        let observation = match map {
            MappingUse { uncounted: true, .. } => Observation::Unobservable,
            MappingUse { referenced: 1.., .. } => Observation::Accessed,
            _ => Observation::Idle,
        };
        (map.range, observation)
    };
    Ok(smaps(pid)?.into_iter().map(seen).collect())
}

fn smaps(pid: u32) -> io::Result<Vec<MappingUse>> {
    read_mapping_uses(File::open(path(memory_id(Path::new("/"), pid), "smaps"))?)
}

#[allow(clippy::disallowed_methods, reason = "writes to /proc/PID/clear_refs")]
fn open(pid: u32, name: &str) -> Result<File, RefsError> {
    let path = path(pid, name);
    File::options().write(true).open(&path).map_err(|source| RefsError::Open { path, source })
}

fn path(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_has_its_lazily_freed_bytes_apart() {
        let smaps = b"1000000-2000000 rw-p 00000000 00:00 0 \nRss: 8192 kB\nReferenced: 2048 kB\nLazyFree: 4096 kB\n";
        let maps = read_mapping_uses(&smaps[..]).unwrap();
        let found = read(&maps[0], &AccessedElsewhere::default());
        assert_eq!(Some(found.range), AddrRange::new(0x100_0000, 0x200_0000));
        assert_eq!(
            (found.figures.present, found.figures.touched, found.kinds.lazily_freed),
            (4 << 20, 2 << 20, 4 << 20)
        );
    }

    #[test]
    fn what_others_access_of_a_mapping_is_unobservable_and_no_sample_finds_it_idle() {
        let smaps = b"1000000-2000000 rw-p 00000000 00:00 0 \nRss: 8192 kB\nReferenced: 8192 kB\n";
        let map = read_mapping_uses(&smaps[..]).unwrap().remove(0);
        let root = tempfile::tempdir().unwrap();
        let process = root.path().join("proc/7");
        for directory in ["fd", "fdinfo"] {
            std::fs::create_dir_all(process.join(directory)).unwrap();
        }
        std::os::unix::fs::symlink("anon_inode:[io_uring]", process.join("fd/3")).unwrap();
        std::fs::write(process.join("fdinfo/3"), "UserBufs:\t1\n    0: 0x1100000/2097152\n").unwrap();
        let mappings: std::sync::Arc<[Mapping]> = [Mapping::anonymous(map.range)].into();
        let space =
            TargetSpace { id: TargetId::process(7, Duration::ZERO), layout: isotherm_core::Layout::Process, mappings };
        let mut target = RefsTarget::new(&space).unwrap();
        target.elsewhere.update(root.path(), space.id, &space.mappings, true);

        let found = read(&map, &target.elsewhere);
        assert_eq!(
            (found.figures.present, found.figures.touched, found.figures.unobservable),
            (8 << 20, 6 << 20, 2 << 20)
        );
        assert_eq!(found.kinds.unseen[Unseen::IoUring], 2 << 20);
        target.state = State::Ended;
        let mut answer = |seen| {
            target.mappings = vec![(map.range, seen)];
            target.answer(0x150_0000)
        };
        assert_eq!(answer(Observation::Idle), Observation::Unobservable);
        assert_eq!(answer(Observation::Accessed), Observation::Accessed);
    }

    #[test]
    fn the_expected_pause_follows_the_largest_mapping_the_memory_and_the_number_of_mappings() {
        let gib = 1_u64 << 30;
        let of = |start: u64, size: u64| AddrRange::new(start, start + size).map(Mapping::anonymous);
        let one: Vec<Mapping> = of(0, 64 * gib).into_iter().collect();
        assert_eq!(expected_pause(4 * gib, &one), Duration::from_millis(80), "what is resident is read");
        let four: Vec<Mapping> = (0..4).filter_map(|nth| of(nth * gib, gib)).collect();
        let pause = expected_pause(4 * gib, &four);
        assert!(pause > Duration::from_millis(31) && pause < Duration::from_millis(33), "{pause:?}");
        let many: Vec<Mapping> = (0..60_000).filter_map(|nth| of(nth << 13, 4096)).collect();
        assert!(expected_pause(60_000 << 12, &many) > Duration::from_millis(60));
        assert_eq!(expected_pause(0, &[]), Duration::ZERO);
    }
}
