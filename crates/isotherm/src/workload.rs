//! `isotherm workload`: accesses memory as a pattern says.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use isotherm_core::PAGE_SIZE;
use isotherm_input::Input;
use isotherm_kernel::unix_ns;
use isotherm_output::standard_output;
use isotherm_sim::{Pattern, PatternError, Phase, Touch};
use memmap2::MmapMut;
use rand_pcg::Pcg64Mcg;
use serde_json::json;

use crate::WrongCall;
use crate::cli::Workload;

/// The time from one batch of touches to the next.
const BEAT: Duration = Duration::from_micros(500);

/// The time from one report of `--flat-out` to the next.
const REPORT: Duration = Duration::from_millis(100);

pub fn run(options: &Workload) -> Result<ExitCode> {
    if options.list {
        for name in Pattern::names() {
            writeln!(standard_output(), "{name:<22} {}", Pattern::shipped(name)?.about)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let pattern = read(&options.pattern)?.scaled(options.scale.into());
    let until = options.time.unwrap_or(pattern.time());
    let mut areas: Areas = pattern.areas.iter().map(|_| None).collect();
    if options.flat_out {
        flat_out(&pattern, &mut areas, until)?;
    } else {
        follow(&pattern, &mut areas, until, options.announce)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The memory of each area; `None` for an area that is not mapped.
type Areas = Vec<Option<MmapMut>>;

/// Runs the phases for the time `until`. After the last phase, it begins with the first one again.
fn follow(pattern: &Pattern, areas: &mut Areas, until: Duration, announce: bool) -> Result<()> {
    let mut left = until;
    for phase in pattern.phases.iter().cycle() {
        if left.is_zero() {
            break;
        }
        enter(pattern, phase, areas)?;
        // A phase begins after its memory is mapped, so that its length is exact.
        let start = Instant::now();
        if announce {
            print_addresses(pattern, areas)?;
        }
        let time = phase.time.min(left);
        let mut touching = touching(pattern, phase);
        while start.elapsed() < time {
            let beat = start.elapsed();
            for touching in &mut touching {
                touching.keep_up(areas, beat);
            }
            std::thread::sleep(BEAT.saturating_sub(start.elapsed() - beat));
        }
        left -= time;
    }
    Ok(())
}

/// Touches the areas of the first phase one after the other as fast as possible. Prints the number of touches and the
/// time that they took.
fn flat_out(pattern: &Pattern, areas: &mut Areas, until: Duration) -> Result<()> {
    enter(pattern, &pattern.phases[0], areas)?;
    let mut touching = touching(pattern, &pattern.phases[0]);
    let start = Instant::now();
    while start.elapsed() < until {
        let began = Instant::now();
        let mut touches = 0;
        while began.elapsed() < REPORT {
            touches += touching.iter_mut().map(|touching| touching.sweep(areas)).sum::<u64>();
        }
        let took = began.elapsed().as_nanos() as u64;
        writeln!(standard_output(), "{}", json!({ "unix_ns": unix_ns(), "touches": touches, "ns": took }))?;
    }
    Ok(())
}

/// Maps and unmaps areas, so that those of the phase are mapped.
fn enter(pattern: &Pattern, phase: &Phase, areas: &mut Areas) -> Result<()> {
    // The kernel maps memory from high addresses to low, so the first area is mapped last and gets the lowest address.
    for (area, memory) in pattern.areas.iter().zip(areas).rev() {
        if phase.unmapped.contains(&area.name) {
            *memory = None;
        } else if memory.is_none() {
            *memory = Some(map(area.size)?);
        }
    }
    Ok(())
}

fn read(name: &str) -> Result<Pattern> {
    if name.ends_with(".toml") {
        let text =
            Input::new(name.as_ref()).or_pipe().text().with_context(|| format!("the pattern {name} cannot be read"))?;
        return Pattern::parse(&text).with_context(|| format!("{name} is not a valid pattern"));
    }
    match Pattern::shipped(name) {
        Err(error @ PatternError::Unknown(_)) => Err(WrongCall::new("workload", error.to_string()).into()),
        pattern => Ok(pattern?),
    }
}

/// Maps memory and writes to every page, so that it is resident.
fn map(size: u64) -> Result<MmapMut> {
    let mapped = usize::try_from(size).map_err(std::io::Error::other).and_then(MmapMut::map_anon);
    let mut memory = mapped.with_context(|| format!("{size} bytes of memory cannot be mapped"))?;
    for byte in memory.iter_mut().step_by(PAGE_SIZE as usize) {
        *byte = 1;
    }
    Ok(memory)
}

/// Prints the addresses of the mapped areas at the start of a phase.
fn print_addresses(pattern: &Pattern, areas: &Areas) -> Result<()> {
    let mapped = pattern.areas.iter().zip(areas).filter_map(|(area, memory)| {
        let start = memory.as_ref()?.as_ptr() as u64;
        Some(json!({ "name": area.name, "start": start, "end": start + area.size }))
    });
    let areas = mapped.collect::<Vec<_>>();
    Ok(writeln!(standard_output(), "{}", json!({ "unix_ns": unix_ns(), "areas": areas }))?)
}

/// A touch of the pattern, and its state in a phase.
struct Touching<'a> {
    touch: &'a Touch,
    /// The index of its area.
    area: usize,
    /// The number of pages touched since the phase began.
    made: u64,
    rng: Pcg64Mcg,
}

fn touching<'a>(pattern: &Pattern, phase: &'a Phase) -> Vec<Touching<'a>> {
    let touching = |touch: &'a Touch| {
        let area = pattern.area(&touch.area)?;
        Some(Touching { touch, area, made: 0, rng: Pcg64Mcg::new(1) })
    };
    phase.touch.iter().filter_map(touching).collect()
}

impl Touching<'_> {
    /// Makes the touches that are due at this time of the phase. If more than one sweep is due, because the beat is
    /// late, only the last sweep is made: it touches every page.
    fn keep_up(&mut self, areas: &mut Areas, time: Duration) {
        let Some(memory) = &mut areas[self.area] else {
            return;
        };
        let pages = memory.len() as u64 / PAGE_SIZE;
        let due = (time.as_secs_f64() / self.touch.every.as_secs_f64() * pages as f64) as u64;
        self.made = self.made.max(due.saturating_sub(pages));
        self.touch_until(areas, due);
    }

    /// Makes as many touches as the area has pages. Returns their number.
    fn sweep(&mut self, areas: &mut Areas) -> u64 {
        let pages = areas[self.area].as_ref().map_or(0, |memory| memory.len() as u64 / PAGE_SIZE);
        self.touch_until(areas, self.made + pages);
        pages
    }

    fn touch_until(&mut self, areas: &mut Areas, due: u64) {
        let Some(memory) = &mut areas[self.area] else {
            return;
        };
        let pages = memory.len() as u64 / PAGE_SIZE;
        for nth in self.made..due {
            let page = self.touch.page(nth, pages, &mut self.rng);
            let byte = &mut memory[(page * PAGE_SIZE) as usize];
            *byte = std::hint::black_box(byte.wrapping_add(1));
        }
        self.made = self.made.max(due);
    }
}
