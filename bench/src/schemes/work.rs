//! The measured program: does the work itself or starts the program that does it, and reports how long it took.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio, id};
use std::thread::sleep;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use isotherm_core::PAGE_SIZE;
use isotherm_sim::{Pattern, Touch};
use memmap2::{Advice, MmapMut};
use procfs::process::Process;
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::prepare::{queries_of, times};
use super::redis;
use super::workload::{Kind, Workload};

/// Name of the file that lists the processes to sample.
pub(crate) const PIDS: &str = "pids";

/// Name of the file with the result, a [`Took`].
pub(crate) const TOOK: &str = "took";

/// The time that the work took.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
}

/// Does the work of `workload`, `length` times, with the files in `place`. With `huge`, the program asks for
/// huge pages for all memory that it allocates; no setting of the machine is changed.
///
/// # Errors
/// If the program cannot be started, or fails.
pub fn work(workload: &Workload, place: &Path, length: f64, huge: bool) -> Result<()> {
    note(place, id())?;
    let start = Instant::now();
    match workload.kind {
        Kind::Pattern { touches } => follow(&workload.pattern()?, times(touches, length), length, huge)?,
        Kind::Redis { keys, requests } => {
            let mut server = redis::start(place, huge)?;
            note(place, server.id())?;
            redis::drive(place, keys, times(requests, length))?;
            finish("redis-server", &mut server)?;
        }
        Kind::Sqlite { .. } => {
            program(place, huge, Command::new("sqlite3").arg(":memory:"), Some(&queries_of(workload)))?
        }
        Kind::SqliteFile { .. } => {
            program(place, huge, Command::new("sqlite3").arg(place.join("database")), Some(&queries_of(workload)))?;
        }
        Kind::Numpy { steps } => {
            program(place, huge, python(place, "model.py").arg(times(steps, length).to_string()), None)?
        }
        Kind::File { sums, .. } => {
            let mut command = python(place, "mapped.py");
            program(place, huge, command.arg(place.join("mapped")).arg(times(sums, length).to_string()), None)?;
        }
        Kind::Compiler { .. } => {
            let file = place.join("functions.i");
            program(
                place,
                huge,
                Command::new("cc1").args(["-fpreprocessed", "-quiet", "-O1", "-o", "/dev/null"]).arg(file),
                None,
            )?;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let stat = Process::myself()?.stat()?;
    let ticks = stat.utime + stat.stime + stat.cutime.unsigned_abs() + stat.cstime.unsigned_abs();
    let took = Took { seconds, cpu_seconds: ticks as f64 / procfs::ticks_per_second() as f64 };
    Ok(std::fs::write(place.join(TOOK), serde_json::to_string(&took)?)?)
}

fn python(place: &Path, script: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    // numpy asks for huge pages by itself if the kernel's setting allows it. The program must not depend on
    // the setting.
    command.env("NUMPY_MADVISE_HUGEPAGE", "0").env("OPENBLAS_NUM_THREADS", "1").arg(place.join(script));
    command
}

fn note(place: &Path, pid: u32) -> Result<()> {
    Ok(writeln!(OpenOptions::new().create(true).append(true).open(place.join(PIDS))?, "{pid}")?)
}

fn program(place: &Path, huge: bool, command: &mut Command, input: Option<&str>) -> Result<()> {
    let input = match input {
        Some(name) => Stdio::from(File::open(place.join(name))?),
        None => Stdio::null(),
    };
    if huge {
        // glibc then calls madvise(MADV_HUGEPAGE) on the memory that it allocates.
        command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    }
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child =
        command.stdin(input).stdout(Stdio::null()).spawn().with_context(|| format!("{name} cannot be started"))?;
    note(place, child.id())?;
    finish(&name, &mut child)
}

fn finish(name: &str, child: &mut Child) -> Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "{name} failed: {status}");
    Ok(())
}

/// Touches memory as `pattern` says, as fast as possible, `touches` times in all. Each phase gets a share of
/// the touches that corresponds to its share of the time. A phase without touches takes its time.
fn follow(pattern: &Pattern, touches: u64, length: f64, huge: bool) -> Result<()> {
    let mut areas = Vec::new();
    // The kernel maps from high addresses down. Map the first area last so that it lies lowest.
    for area in pattern.areas.iter().rev() {
        let mut memory = MmapMut::map_anon(area.size as usize).context("there is not enough memory")?;
        if huge {
            memory.advise(Advice::HugePage)?;
        }
        for byte in memory.iter_mut().step_by(PAGE_SIZE as usize) {
            *byte = 1;
        }
        areas.insert(0, memory);
    }
    let busy: f64 =
        pattern.phases.iter().filter(|phase| !phase.touch.is_empty()).map(|phase| phase.time.as_secs_f64()).sum();
    for phase in &pattern.phases {
        if phase.touch.is_empty() {
            sleep(phase.time.mul_f64(length));
        }
        for touch in &phase.touch {
            let memory =
                pattern.area(&touch.area).and_then(|area| areas.get_mut(area)).context("an area is missing")?;
            let share = phase.time.as_secs_f64() / busy / phase.touch.len() as f64;
            sweep(touch, memory, (touches as f64 * share) as u64);
        }
    }
    Ok(())
}

fn sweep(touch: &Touch, memory: &mut MmapMut, touches: u64) {
    let pages = memory.len() as u64 / PAGE_SIZE;
    let mut rng = Pcg64Mcg::new(1);
    for nth in 0..touches {
        let byte = &mut memory[(touch.page(nth, pages, &mut rng) * PAGE_SIZE) as usize];
        *byte = black_box(byte.wrapping_add(1));
    }
}
