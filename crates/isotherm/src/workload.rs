//! `isotherm workload`: a pattern as a real process.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use isotherm_core::PAGE_SIZE;
use isotherm_sim::{Order, Pattern, PatternError, Touch};
use memmap2::MmapMut;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use serde_json::json;

use crate::cli::Workload;
use crate::wrong_call;

/// How often the touches that have become due are made.
const BEAT: Duration = Duration::from_micros(500);

pub fn run(options: &Workload) -> Result<ExitCode> {
    if options.list {
        for name in Pattern::names() {
            println!("{name:<12} {}", Pattern::shipped(name)?.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let pattern = read(&options.pattern)?;
    let until = options.time.unwrap_or(pattern.time());
    let mut areas: Vec<Option<MmapMut>> = pattern.areas.iter().map(|_| None).collect();
    let start = Instant::now();
    let mut phase_start = Duration::ZERO;
    for phase in pattern.phases.iter().cycle() {
        if phase_start >= until {
            break;
        }
        for (area, memory) in pattern.areas.iter().zip(&mut areas) {
            if phase.unmapped.contains(&area.name) {
                *memory = None;
            } else if memory.is_none() {
                *memory = Some(map(area.size.as_u64())?);
            }
        }
        if options.announce {
            announce(&pattern, &areas)?;
        }
        let phase_end = (phase_start + phase.time).min(until);
        let mut touching: Vec<Touching> = phase.touch.iter().map(Touching::new).collect();
        while start.elapsed() < phase_end {
            let beat = start.elapsed();
            for touching in &mut touching {
                let area = pattern.area(&touching.touch.area).and_then(|area| areas[area].as_mut());
                if let Some(memory) = area {
                    touching.advance(memory, beat - phase_start);
                }
            }
            std::thread::sleep(BEAT.saturating_sub(start.elapsed() - beat));
        }
        phase_start += phase.time;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(name: &str) -> Result<Pattern> {
    if name.ends_with(".toml") {
        let text = std::fs::read_to_string(name).with_context(|| format!("the pattern {name} cannot be read"))?;
        return Pattern::parse(&text).with_context(|| format!("{name} is no pattern"));
    }
    match Pattern::shipped(name) {
        Err(error @ PatternError::Unknown(_)) => wrong_call("workload", error),
        pattern => Ok(pattern?),
    }
}

/// Memory that is there: every page has been written once.
fn map(size: u64) -> Result<MmapMut> {
    let mut memory = usize::try_from(size)
        .ok()
        .and_then(|size| MmapMut::map_anon(size).ok())
        .with_context(|| format!("{size} bytes of memory are not to be had"))?;
    for byte in memory.iter_mut().step_by(PAGE_SIZE as usize) {
        *byte = 1;
    }
    Ok(memory)
}

/// Says where each area lies now that a phase begins.
fn announce(pattern: &Pattern, areas: &[Option<MmapMut>]) -> Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mapped = pattern.areas.iter().zip(areas).filter_map(|(area, memory)| {
        let start = memory.as_ref()?.as_ptr() as u64;
        Some(json!({ "name": area.name, "start": start, "end": start + area.size.as_u64() }))
    });
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", json!({ "unix_ns": now.as_nanos() as u64, "areas": mapped.collect::<Vec<_>>() }))?;
    Ok(out.flush()?)
}

/// A touch of the pattern, on its way through a phase.
struct Touching<'a> {
    touch: &'a Touch,
    /// Touches made since the phase began.
    made: u64,
    rng: Pcg64Mcg,
}

impl<'a> Touching<'a> {
    fn new(touch: &'a Touch) -> Self {
        Self { touch, made: 0, rng: Pcg64Mcg::new(1) }
    }

    /// Makes the touches that are due at this time of the phase. What a late beat missed beyond one sweep stays undone:
    /// no page would be touched by it that is not touched anyway.
    fn advance(&mut self, memory: &mut MmapMut, time: Duration) {
        let pages = memory.len() as u64 / PAGE_SIZE;
        let due = (time.as_secs_f64() / self.touch.every.as_secs_f64() * pages as f64) as u64;
        self.made = self.made.max(due.saturating_sub(pages));
        for nth in self.made..due {
            let page = match self.touch.order {
                Order::Sequential => nth % pages,
                Order::Strided(stride) => nth * stride % (pages.div_ceil(stride) * stride),
                Order::Random => self.rng.next_u64() % pages,
            };
            let byte = &mut memory[(page * PAGE_SIZE) as usize];
            *byte = std::hint::black_box(byte.wrapping_add(1));
        }
        self.made = due;
    }
}
