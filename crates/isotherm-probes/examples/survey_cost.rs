//! Measures what a survey of all pages costs: reading, and clearing what was accessed.
//!
//! Run it as root: `cargo run --release -p isotherm-probes --example survey_cost [GIB [USED_MIB]]`. The target is
//! this program, started again, with GIB (default 1) of present pages of 4 KiB, of which it accesses the first USED_MIB
//! (default: all of them) before each survey.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_core::survey::{BlockPages, ClearPages, PageBits, SurveyPart};
use isotherm_core::{AccessProbe, BoxError, Layout, TargetSpace};
use isotherm_kernel::Process;
use isotherm_probes::bpf::BpfProbe;

const ROUNDS: usize = 11;
const PAGE: usize = 4096;

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).and_then(|argument| argument.parse::<usize>().ok());
    if arguments.first().is_some_and(|first| first == "target") {
        return be_surveyed(number(1).unwrap_or(1) << 30);
    }
    let gib = number(0).unwrap_or(1);
    let used = number(1).unwrap_or(gib << 10);
    let mut child = Command::new(std::env::current_exe()?)
        .args(["target", &gib.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let result = measure(&mut child, gib, used);
    child.kill()?;
    child.wait()?;
    result
}

/// Holds memory. Each line on the standard input is a number of bytes to write to.
fn be_surveyed(size: usize) -> Result<(), BoxError> {
    rustix::thread::disable_transparent_huge_pages(true)?;
    let mut memory = vec![1u8; size];
    println!("ready");
    for line in std::io::stdin().lines() {
        let bytes: usize = line?.parse()?;
        memory[..bytes].iter_mut().step_by(PAGE).for_each(|byte| *black_box(byte) ^= 1);
        println!("done");
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn measure(child: &mut Child, gib: usize, used: usize) -> Result<(), BoxError> {
    let mut orders = child.stdin.take().ok_or("no stdin")?;
    let mut answers = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    let mut line = String::new();
    answers.read_line(&mut line)?;

    let process = Process::open(child.id())?;
    let space = TargetSpace { id: process.id(), layout: Layout::Process, mappings: process.mappings()? };
    let mut probe = BpfProbe::open()?.with_sweeps(false);
    probe.update(std::slice::from_ref(&space))?;
    let survey = probe.survey().ok_or("no survey")?;
    let mut blocks: Vec<BlockPages> = Vec::new();
    let mut times: Vec<[Duration; 3]> = Vec::new();
    let mut cleared = 0;
    let mut unobservable = 0;
    for _ in 0..ROUNDS {
        writeln!(orders, "{}", used << 20)?;
        line.clear();
        answers.read_line(&mut line)?;
        let began = (Instant::now(), cpu());
        survey.begin()?;
        blocks.clear();
        survey.read(&space, SurveyPart::ALL, &mut blocks)?;
        let read = (began.0.elapsed(), cpu() - began.1);
        let mut chosen: Vec<ClearPages> = blocks
            .iter()
            .filter(|block| !block.accessed.is_empty())
            .map(|block| ClearPages { start: block.start, pages: block.accessed, unobservable: PageBits::NONE })
            .collect();
        let before = cpu();
        cleared = survey.clear(space.id, &mut chosen)?;
        unobservable = chosen.iter().map(|block| block.unobservable.count()).sum();
        times.push([read.0, read.1, cpu() - before]);
    }
    let present: usize = blocks.iter().map(|block| block.present.count()).sum();
    let middle = |i: usize| {
        let mut times: Vec<Duration> = times.iter().map(|times| times[i]).collect();
        times.sort();
        times[times.len() / 2]
    };
    println!("{gib} GiB, {used} MiB of it accessed; {present} present pages in {} blocks", blocks.len());
    println!("  read   {:>9.2?}, of CPU {:>9.2?}", middle(0), middle(1));
    println!("  clear  of CPU {:>9.2?}; {cleared} cleared, {unobservable} unobservable", middle(2));
    Ok(())
}

/// The CPU time of this process, system and user.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
