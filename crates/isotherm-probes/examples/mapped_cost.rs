//! Measures what a survey of physical memory through the page tables of all processes costs.
//!
//! Run it as root: `cargo run --release -p isotherm-probes --example mapped_cost [SURVEYS [BLOCKS]]`. It surveys the
//! machine as it is, once a second, and clears what a run would clear. With BLOCKS, a survey is done in pieces of so
//! many blocks. `longest` is the longest piece, from its read to its clear; `end` is what is left to do after the last.

use std::sync::Arc;
use std::time::Duration;

use isotherm_core::survey::{BlockPages, ClearLimits, PageHistory, Survey, SurveyPart};
use isotherm_core::{AddressSpace, BoxError, TargetId};
use isotherm_kernel::{PhysicalMemory, monitor_cpu_time};
use isotherm_probes::bpf::{SharedLimits, SharedMemory};
use isotherm_probes::mapped::MappedProbe;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// How many pages are cleared.
const LIMITS: ClearLimits = ClearLimits { again: 12_500.0, unknown: 0.0, clears: f64::INFINITY };

fn main() -> Result<(), BoxError> {
    let surveys: u32 = std::env::args().nth(1).map_or(Ok(10), |surveys| surveys.parse())?;
    let memory = PhysicalMemory::new([])?.read_targets()?.remove(0);
    let mut probe = MappedProbe::open(SharedMemory::Auto, SharedLimits::default())?;
    let mut history = PageHistory::since(None);
    probe.set_parts_above(0);
    let mut blocks: Vec<BlockPages> = Vec::new();
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let most = std::env::args().nth(2).map_or(Ok(usize::MAX), |blocks| blocks.parse())?;
    println!("present    accessed  begin      read       history    clear      end        pieces  longest    bits");
    for survey in 0..surveys {
        let mut cpu = monitor_cpu_time();
        let mut lap = || {
            let now = monitor_cpu_time();
            now - std::mem::replace(&mut cpu, now)
        };
        probe.begin()?;
        let begin = lap();
        let now = Duration::from_secs(survey.into());
        let mut update = Arc::new(std::mem::take(&mut history)).update(now);
        let (mut read, mut taken, mut clear, mut longest) = <(Duration, Duration, Duration, Duration)>::default();
        let (mut present, mut accessed, mut bits, mut pieces, mut from) = (0, 0, 0, 0, 0);
        loop {
            blocks.clear();
            let rest = Survey::read(&mut probe, &memory, SurveyPart { from, most }, &mut blocks)?;
            let mut piece = [lap(), Duration::ZERO, Duration::ZERO];
            let mut part = update.take(&blocks);
            // What may be cleared is shared out by blocks.
            let share = blocks.len() as f64 / (blocks.len() + rest.blocks).max(1) as f64;
            let limits = ClearLimits { again: LIMITS.again * share, ..LIMITS };
            let mut chosen = part.choose(limits, &mut rng).blocks;
            piece[1] = lap();
            bits += Survey::clear(&mut probe, TargetId::PhysicalMemory, &mut chosen)?;
            piece[2] = lap();
            part.note_cleared(&chosen);
            update = part.end(&memory.mappings);
            piece[1] += lap();
            for (sum, lap) in [&mut read, &mut taken, &mut clear].into_iter().zip(piece) {
                *sum += lap;
            }
            longest = piece.iter().sum::<Duration>().max(longest);
            present += blocks.iter().map(|block| block.present.count()).sum::<usize>();
            accessed += blocks.iter().map(|block| block.accessed.count()).sum::<usize>();
            pieces += 1;
            match rest.from {
                Some(next) => from = next,
                None => break,
            }
        }
        history = update.finish(now);
        let end = lap();
        let [begin, read, taken, clear, end, longest] =
            [begin, read, taken, clear, end, longest].map(|lap| format!("{lap:<9.2?}"));
        println!(
            "{present:<9}  {accessed:<8}  {begin}  {read}  {taken}  {clear}  {end}  {pieces:<6}  {longest}  {bits}"
        );
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}
