//! Runs that are killed at any moment leave no limit behind: the next start gives back what there was.
#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use isotherm_kernel::cgroup::CgroupDirectory;
use isotherm_testing::or_skip;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

use super::tests::{high, made, reached, restored, set, wanted};
use super::*;

/// The root directory of a victim.
const VICTIM: &str = "ISOTHERM_TEST_LIMITS";

const MIB: u64 = 1 << 20;

/// How often a run is killed.
const KILLS: u32 = 1_000;

/// The files of a made cgroup, of which a write takes effect as a whole or not at all, as in the kernel's.
#[derive(Debug)]
struct Whole(CgroupDirectory, PathBuf);

impl CgroupFiles for Whole {
    fn read(&self, name: &str) -> io::Result<String> {
        self.0.read(name)
    }

    #[allow(clippy::disallowed_methods, reason = "replaces a file of a made tree")]
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let part = self.1.join("part");
        fs::write(&part, text)?;
        fs::rename(part, self.1.join(name))
    }

    fn inode(&self) -> io::Result<u64> {
        self.0.inode()
    }
}

/// The cgroup with files of which each write is whole.
fn whole(root: &Path) -> CgroupMemory<Whole> {
    let path = root.join("cg/a");
    CgroupMemory::with_files("/a", Whole(CgroupDirectory::open(&path).unwrap(), path))
}

#[test]
#[ignore = "the process that others kill"]
fn limit_without_end() {
    let root = PathBuf::from(or_skip!(std::env::var(VICTIM).map_err(|_| "no other test has started it")));
    let mut random = Pcg32::seed_from_u64(u64::from(std::process::id()));
    println!("begins");
    loop {
        let mut runs = [LimitFile::High, LimitFile::Low].map(|file| CgroupLimits::new(&root, file));
        for limits in &mut runs {
            for _ in 0..random.random_range(1..6) {
                let current = random.random_range(60..140) * MIB;
                fs::write(root.join("cg/a/part-of-current"), current.to_string()).unwrap();
                fs::rename(root.join("cg/a/part-of-current"), root.join("cg/a/memory.current")).unwrap();
                let how = wanted(whole(&root));
                let in_use = random.random_range(40..=current / MIB) * MIB;
                let how = Wanted { in_use, known: Some(in_use), ..how };
                limits.set_each(vec![if random.random_ratio(1, 4) { reached(whole(&root)) } else { how }]);
            }
        }
        if random.random_ratio(1, 2) {
            runs.iter_mut().for_each(CgroupLimits::end);
        } else {
            // As when a scheme is replaced.
            runs.iter_mut().for_each(|limits| limits.set_each(vec![]));
        }
    }
}

/// A process that limits the cgroup without end.
fn victim(root: &Path) -> Child {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "limits::kills::limit_without_end", "--ignored", "--nocapture"])
        .env(VICTIM, root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    assert!(lines.by_ref().map_while(Result::ok).any(|line| line.contains("begins")));
    victim
}

#[test]
fn no_limit_is_left_behind_by_runs_that_are_killed_at_any_moment() {
    let root = made();
    let low = || fs::read_to_string(root.path().join("cg/a/memory.low")).unwrap().trim().to_owned();
    let mut random = Pcg32::seed_from_u64(7);
    let (mut limited, mut noted) = (0, 0);
    for nth in 0..KILLS {
        // What there was before is not the same each time.
        let before = if nth % 2 == 0 { "max".to_owned() } else { (500 * MIB).to_string() };
        set(root.path(), "memory.high", &before);
        let mut victim = victim(root.path());
        std::thread::sleep(Duration::from_micros(random.random_range(0..4_000)));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let was_limited = high(root.path()) != before || low() != "0";
        limited += u32::from(was_limited);
        noted += u32::from(root.path().join("run/isotherm").exists());
        let said = restored(root.path());
        assert_eq!((high(root.path()), low()), (before, "0".into()), "kill {nth}: {said}");
        assert_eq!(said.contains(" again: an isotherm that was killed had left "), was_limited, "kill {nth}: {said}");
        let left = fs::read_dir(root.path().join("run/isotherm")).into_iter().flatten().flatten();
        let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "kill {nth}: {left:?} is left, although {said:?}");
    }
    // Otherwise the kills did not come in between.
    assert!(limited > KILLS / 10 && noted > limited, "{limited} of {KILLS} with a limit, {noted} with a journal");
}
