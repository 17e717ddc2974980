//! Helpers of the tests of migration: memory whose content is known, runs with schemes that move it, and where it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_core::scheme::Report;
use isotherm_core::{AddrRange, NodeId, PAGE_SIZE};
use isotherm_kernel::pages::{FrameNodes, PageBuffer, Pagemap, SystemRam};
use isotherm_record::Recording;

use crate::{EMULATED, Running, isotherm, result_file, run};

/// The bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// The node of the processors.
pub const FAST: NodeId = NodeId(0);
/// The slow node of a machine with two nodes.
pub const SLOW: NodeId = NodeId(1);

/// Intervals that are long enough for an emulated, busy machine to touch the hot area in each of them.
pub const LONG_INTERVALS: [&str; 4] = ["--sample", "30ms", "--aggr", "300ms"];

/// The command that runs these schemes on processes for this time.
pub fn acting(name: &str, schemes: &str, pids: &[u32], time: &str) -> Command {
    let file = result_file(&format!("{name}.yaml"));
    fs::write(&file, schemes).unwrap();
    let mut command = isotherm(&["run", "--duration", time, "--seed", "1"]);
    for pid in pids {
        command.args(["--pid", &pid.to_string()]);
    }
    command.args(LONG_INTERVALS).args(EMULATED).args(["--survey", "1s"]);
    command.arg("--schemes").arg(&file).arg("--record").arg(recording(name));
    command
}

/// The recording of a run of this name.
pub fn recording(name: &str) -> PathBuf {
    result_file(&format!("{name}.rec"))
}

/// What the schemes of a finished run have done.
pub fn reports(name: &str) -> Vec<Report> {
    let recording = Recording::open(&recording(name)).unwrap();
    recording.activities().last().unwrap().unwrap().schemes
}

/// A scheme with this condition and action, on the addresses of `range` only.
pub fn scheme(name: &str, condition: &str, range: AddrRange) -> String {
    format!(
        "- {{name: {name}, {condition}, filters: [{{allow: {{address: [{:#x}, {:#x}]}}}}]}}\n",
        range.start(),
        range.end()
    )
}

/// The share of the pages of a range in memory that is on `node`, 0 to 1.
pub fn share_on(pid: u32, range: AddrRange, node: NodeId) -> f64 {
    let root = Path::new("/");
    let nodes = FrameNodes::new(&SystemRam::new(root).read().unwrap());
    let (mut there, mut all) = (0, 0);
    let pagemap = Pagemap::open(root, &pid.to_string()).unwrap();
    let tell = |frame: Option<u64>| {
        all += u64::from(frame.is_some());
        there += u64::from(frame.is_some_and(|frame| nodes.node(frame) == Some(node)));
    };
    pagemap.frames(range.page_addresses(), &mut PageBuffer::default(), tell).unwrap();
    there as f64 / (all as f64).max(1.0)
}

/// Waits until nearly all of `range` in this process is on `node`. A huge page at its border, of which only a part is
/// in the range, stays where it is.
pub fn wait_until_on(node: NodeId, range: AddrRange) {
    let start = Instant::now();
    loop {
        let share = share_on(std::process::id(), range, node);
        if share > 0.85 {
            return println!("on node {node} after {:.1} s", start.elapsed().as_secs_f64());
        }
        assert!(start.elapsed() < Duration::from_secs(90), "{share:.2} is on node {node} after 90 s");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Ends a run, which must succeed.
pub fn end(mut run: Running) {
    assert_eq!(run_sh(&format!("kill -INT {}", run.pid())), 0);
    assert_eq!(run.wait(), 0);
}

/// The exit status of a script.
pub fn run_sh(script: &str) -> i32 {
    run(Command::new("sh").args(["-ec", script])).status
}

/// The bytes of huge pages in the mappings that have a part of `range`.
pub fn huge_bytes(range: AddrRange) -> u64 {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_in = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        let first = line.split_whitespace().next().unwrap();
        if let Some((start, end)) = first.split_once('-') {
            let address = |text| u64::from_str_radix(text, 16).ok();
            let mapping = address(start).zip(address(end)).and_then(|(start, end)| AddrRange::new(start, end));
            is_in = mapping.is_some_and(|mapping| mapping.intersection(range).is_some());
        } else if first == "AnonHugePages:" && is_in {
            bytes += line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10;
        }
    }
    bytes
}

/// The words of a page. The first counts how often the page was touched, and the others never change.
const WORDS: usize = PAGE_SIZE as usize / 8;

/// The content of the word at an index.
fn content(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d
}

/// Memory of this process whose content is known, and which is touched while `is_hot`.
pub struct Memory {
    words: Vec<AtomicU64>,
    is_hot: AtomicBool,
    is_over: AtomicBool,
}

impl Memory {
    /// So many bytes, in small pages.
    pub fn of(bytes: u64) -> Self {
        let touched_first = |index: usize| if index.is_multiple_of(WORDS) { 0 } else { content(index) };
        let words = (0..bytes as usize / 8).map(|index| AtomicU64::new(touched_first(index))).collect();
        Self { words, is_hot: AtomicBool::new(false), is_over: AtomicBool::new(false) }
    }

    /// So many bytes, in huge pages where they fit. It changes a setting of the machine meanwhile.
    pub fn of_huge_pages(bytes: u64) -> Self {
        let thp = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        let setting = fs::read_to_string(thp).unwrap();
        fs::write(thp, "always").unwrap();
        let memory = Self::of(bytes);
        fs::write(thp, setting.split(['[', ']']).nth(1).unwrap()).unwrap();
        let huge = huge_bytes(memory.range());
        assert!(huge + 4 * MIB >= bytes, "{huge} bytes of huge pages");
        memory
    }

    /// Whether the memory is touched from now on.
    pub fn set_hot(&self, is_hot: bool) {
        self.is_hot.store(is_hot, Ordering::Relaxed);
    }

    /// The whole pages of the memory.
    pub fn range(&self) -> AddrRange {
        let start = self.words.as_ptr() as u64;
        let end = start + self.words.len() as u64 * 8;
        AddrRange::new(start.next_multiple_of(PAGE_SIZE), end - end % PAGE_SIZE).unwrap()
    }

    /// Touches the memory until it is over: one thread of `threads` touches every page of its own part. A thread checks
    /// what it has written before, and a word that nobody writes. Returns how often each page was touched.
    pub fn touch(&self, nth: usize, threads: usize) -> u64 {
        let mut rounds = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            if !self.is_hot.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            for index in (nth * WORDS..self.words.len()).step_by(threads * WORDS) {
                let before = self.words[index].fetch_add(1, Ordering::Relaxed);
                assert_eq!(before, rounds, "what a thread has written");
                let other = index + 1 + rounds as usize % (WORDS - 1);
                assert_eq!(self.words[other].load(Ordering::Relaxed), content(other), "what nobody writes");
            }
            rounds += 1;
            thread::sleep(Duration::from_millis(5));
        }
        rounds
    }

    /// Ends the threads at the end of a scope, also of one that panics.
    pub fn over_at_the_end(&self) -> impl Drop + '_ {
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        Over(&self.is_over)
    }

    /// Checks the content of all memory. `rounds` is how often each of the threads has touched its part.
    pub fn check(&self, rounds: &[u64]) {
        for (index, word) in self.words.iter().enumerate() {
            let expected = match index % WORDS {
                0 => rounds[index / WORDS % rounds.len()],
                _ => content(index),
            };
            assert_eq!(word.load(Ordering::Relaxed), expected, "word {index}");
        }
    }
}
