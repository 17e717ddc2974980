//! The schemes of `isotherm tier config` on simulated memory of any size: what share of the accesses the slow tier
//! serves.
//!
//! A simulated page stands for a huge page, so that a machine of terabytes can be simulated: [`SCALE`] bytes of the
//! machine are one byte of the simulation. Sizes and rates below are those of the machine.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use isotherm_core::scheme::{HUGE_PAGE_SIZE, Moves, Quota, Report, Scheme, Schemes};
use isotherm_core::survey::SurveySettings;
use isotherm_core::{Attributes, Monitor, Next, Node, NodeId, PAGE_SIZE, Tiers};
use isotherm_run::tiering::{self, Limits, MIGRATION_MARGIN};
use isotherm_sim::{Costs, FastNode, Pattern, SimActuator, SimClock, SimMemory};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// How many bytes of the machine are one byte of the simulation.
pub const SCALE: u64 = HUGE_PAGE_SIZE / PAGE_SIZE;

const GIB: u64 = 1 << 30;
const SECOND: Duration = Duration::from_secs(1);

/// How near to the best placement counts as converged: so much of all accesses.
pub const NEAR: f64 = 0.03;

/// What is accessed. Memory that is not accessed fills the fast tier first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// One 64th of the memory is hot, and stays so
    Hot,
    /// The pages behind the fast tier are accessed by Zipf's law with exponent 0.99
    Zipfian,
    /// One 64th of the memory is hot, and the rest is read from its start to its end once a minute
    Scan,
    /// One 64th of the memory is hot: another one each 30 s
    Moving,
    /// One 64th of the memory is hot, and another one after 60 s
    Once,
    /// Memory a fifth larger than the fast tier is accessed, each page ten times a second
    Over,
    /// Memory a fifth larger than the fast tier is accessed at random, each page every 3 s on average
    Seldom,
    /// Eight sets, half as much again as the fast tier together, are accessed for 5 s each, in turn
    Turns,
    /// One 64th of the memory is hot, and half as much again as the fast tier is read once in 6 s
    Sweep,
    /// One half of the memory behind the fast tier is accessed by Zipf's law, and each minute the other half
    Shift,
}

impl Work {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Zipfian => "zipfian",
            Self::Scan => "scan",
            Self::Moving => "moving",
            Self::Once => "once",
            Self::Over => "over",
            Self::Seldom => "seldom",
            Self::Turns => "turns",
            Self::Sweep => "sweep",
            Self::Shift => "shift",
        }
    }

    /// The pattern of this work in a simulated memory of `bytes`, of which the first `fast` fill the fast tier.
    fn pattern(self, bytes: u64, fast: u64, time: u64) -> Result<Pattern> {
        let hot = (bytes / 64).next_multiple_of(PAGE_SIZE);
        let rest = bytes.saturating_sub(fast + 4 * hot);
        let of_fast = |times: u64, part: u64| (fast * times / part).next_multiple_of(PAGE_SIZE);
        let area = |name: &str, size: u64| match size {
            0 => String::new(),
            size => format!("[[area]]\nname = \"{name}\"\nsize = {size}\n"),
        };
        let phase = |time: u64, touch: &str| format!("[[phase]]\ntime = \"{time}s\"\ntouch = [{touch}]\n");
        let hot_areas: String = (0..4).map(|nth| area(&format!("hot {nth}"), hot)).collect();
        let areas = area("cold", fast) + &area("rest", rest) + &hot_areas;
        let touched = |nth: u64| format!("{{ area = \"hot {nth}\", every = \"100ms\", order = \"random\" }}");
        let text = match self {
            Self::Hot => areas + &phase(time, &touched(0)),
            Self::Scan if rest > 0 => areas + &phase(time, &(touched(0) + ", { area = \"rest\", every = \"60s\" }")),
            Self::Scan => areas + &phase(time, &(touched(0) + ", { area = \"cold\", every = \"60s\" }")),
            Self::Moving => areas + &(0..4).map(|nth| phase(30, &touched(nth))).collect::<String>(),
            Self::Zipfian => {
                let size = bytes - fast;
                // A tenth of the pages is touched in a second, if all were touched alike.
                let touch = "{ area = \"zipfian\", every = \"10s\", order = { zipfian = 0.99 } }";
                area("cold", fast) + &area("zipfian", size) + &phase(time, touch)
            }
            Self::Once => areas + &phase(60, &touched(0)) + &phase(time, &touched(1)),
            Self::Over | Self::Seldom => {
                let every = if self == Self::Over { "100ms" } else { "3s" };
                let touch = format!("{{ area = \"large\", every = \"{every}\", order = \"random\" }}");
                area("cold", fast) + &area("large", of_fast(6, 5)) + &phase(time, &touch)
            }
            Self::Turns => {
                let sets: String = (0..8).map(|nth| area(&format!("hot {nth}"), of_fast(3, 16))).collect();
                area("cold", fast) + &sets + &(0..8).map(|nth| phase(5, &touched(nth))).collect::<String>()
            }
            Self::Sweep => {
                let touch = touched(0) + ", { area = \"swept\", every = \"6s\" }";
                area("swept", of_fast(3, 2)) + &areas + &phase(time, &touch)
            }
            Self::Shift => {
                let size = ((bytes - fast) / 2).next_multiple_of(PAGE_SIZE);
                let touch = |name| format!("{{ area = \"{name}\", every = \"5s\", order = {{ zipfian = 0.99 }} }}");
                let phases = ["one", "other"].map(|name| phase(60, &touch(name)));
                area("cold", fast) + &area("one", size) + &area("other", size) + &phases.concat()
            }
        };
        Ok(Pattern::parse(&format!("about = \"{}\"\n{text}", self.name()))?)
    }
}

/// A simulated run.
#[derive(Clone, Debug)]
pub struct Setting {
    /// What is accessed.
    pub work: Work,
    /// The bytes of all memory that is used.
    pub bytes: u64,
    /// The fast tier is one part in this many of it.
    pub part: u64,
    /// How many bytes are moved in a second at most.
    pub rate: u64,
    /// The CPU time that moving may take in a second.
    pub time: Duration,
    /// The time of a move of 2 MiB.
    pub price: Duration,
    /// The time from one survey to the next.
    pub survey: Duration,
    /// For how long it runs, in seconds.
    pub seconds: u64,
    /// The seed of what is random in it.
    pub seed: u64,
    /// What is replaced in the text of the schemes, and by what: for experiments.
    pub changes: Vec<(String, String)>,
}

/// The share of all accesses that the slow tier serves, 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shares {
    /// With memory where it was touched first.
    pub first_touch: f64,
    /// With isotherm.
    pub moved: f64,
    /// With the best placement for the present accesses.
    pub best: f64,
}

/// What a run has shown.
#[derive(Clone, Debug)]
pub struct Figures {
    /// The shares at the end of each second.
    pub seconds: Vec<Shares>,
    /// The second in which each phase began.
    pub phases: Vec<usize>,
    /// The bytes that were moved up and down.
    pub moved: [u64; 2],
    /// The bytes that were moved back within a minute, and those of which it is known whether they were.
    pub back: [u64; 2],
}

impl Figures {
    /// The mean of the shares from this second on.
    pub fn mean(&self, from: usize) -> Shares {
        let late = &self.seconds[from.min(self.seconds.len() - 1)..];
        let mean = |of: fn(&Shares) -> f64| late.iter().map(of).sum::<f64>() / late.len() as f64;
        Shares { first_touch: mean(|s| s.first_touch), moved: mean(|s| s.moved), best: mean(|s| s.best) }
    }

    /// After how many seconds nine tenths of what the best placement has more of than the one at the start of a phase
    /// are in place: the median over the phases. `None` if that is never so in half of them.
    pub fn in_place(&self) -> Option<usize> {
        let ends = self.phases.iter().skip(1).copied().chain([self.seconds.len()]);
        let mut after: Vec<usize> = self
            .phases
            .iter()
            .zip(ends)
            .filter_map(|(&from, end)| {
                let phase = self.seconds.get(from..end)?;
                let worst = phase.first().map_or(0.0, |shares| shares.first_touch.max(shares.moved));
                let near = |shares: &Shares| shares.moved - shares.best <= (worst - shares.best) / 10.0;
                Some(phase.iter().position(near).unwrap_or(usize::MAX))
            })
            .collect();
        after.sort_unstable();
        after.get(after.len() / 2).copied().filter(|&after| after < usize::MAX)
    }

    /// The second from which on the placement is within [`NEAR`] of the best. `None` if it is not at the end.
    pub fn converged(&self) -> Option<usize> {
        let far = self.seconds.iter().rposition(|shares| shares.moved - shares.best > NEAR);
        far.map_or(Some(0), |last| (last + 1 < self.seconds.len()).then_some(last + 1))
    }
}

/// The schemes that `isotherm tier config` prints for a machine with these tiers.
fn schemes(setting: &Setting, fast: u64) -> Result<Vec<Scheme>> {
    let node = |id: u32, size| Node {
        id: NodeId(id),
        size,
        free: MIGRATION_MARGIN,
        has_processors: id == 0,
        distances: [(NodeId(id), 10), (NodeId(1 - id), 20)].into(),
    };
    let tiers = Tiers::new([node(0, fast), node(1, setting.bytes)], &[]);
    let room: BTreeMap<NodeId, u64> = [0, 1].map(|id| (NodeId(id), MIGRATION_MARGIN)).into();
    let limits = Limits { rate: setting.rate, time: setting.time, dry_run: false };
    let mut text = tiering::text(&tiers, &room, limits);
    for (from, to) in &setting.changes {
        ensure!(text.contains(from), "the schemes do not contain {from:?}:\n{text}");
        text = text.replace(from, to);
    }
    let mut schemes = isotherm_scheme::parse("tier config", &text)?;
    for Scheme { quota, .. } in &mut schemes {
        let (bytes, goals) = (quota.bytes().map(|bytes| bytes / SCALE), quota.goals().to_vec());
        let scaled = Quota::new(bytes, quota.time(), quota.period(), quota.weights(), goals.clone())?;
        *quota = match quota.owner() {
            Some(owner) => scaled.shared(owner.into(), quota.weights(), goals),
            None => scaled,
        };
    }
    Ok(schemes)
}

/// How often each page of each area is touched in a second, at a time.
fn frequencies(pattern: &Pattern, now: Duration) -> Vec<Vec<f64>> {
    let phase = pattern.phase_at(now);
    let of_area = |area: &isotherm_sim::Area| {
        let touches: Vec<_> = phase.touch.iter().filter(|touch| touch.area == area.name).collect();
        let of_page = |page| touches.iter().map(|touch| touch.frequency(page, area.pages())).sum();
        (0..area.pages()).map(of_page).collect()
    };
    pattern.areas.iter().map(of_area).collect()
}

/// The share of the slow tier if the `room` pages that are touched most often are in the fast one.
fn best(frequencies: &[Vec<f64>], room: usize) -> f64 {
    let mut all: Vec<f64> = frequencies.iter().flatten().copied().filter(|&frequency| frequency > 0.0).collect();
    all.sort_unstable_by(|a, b| b.total_cmp(a));
    let sum: f64 = all.iter().sum();
    all.iter().skip(room).sum::<f64>() / sum.max(f64::MIN_POSITIVE)
}

/// The share of the slow tier, with the pages that are `slow`.
fn served(frequencies: &[Vec<f64>], slow: &[Vec<bool>]) -> f64 {
    let each = || frequencies.iter().flatten().zip(slow.iter().flatten());
    let (all, of_slow): (f64, f64) = each().fold((0.0, 0.0), |(all, of_slow), (frequency, slow)| {
        (all + frequency, of_slow + if *slow { *frequency } else { 0.0 })
    });
    of_slow / all.max(f64::MIN_POSITIVE)
}

/// Runs the schemes on the simulated machine.
///
/// # Errors
/// If the setting makes no pattern or no schemes.
pub fn run(setting: &Setting) -> Result<Figures> {
    let fast = setting.bytes / setting.part;
    let size = fast / SCALE;
    let pattern = setting.work.pattern(setting.bytes / SCALE, size, setting.seconds)?;
    let clock = SimClock::default();
    let memory = SimMemory::new(pattern.clone(), clock.clone(), setting.seed);
    let kept = MIGRATION_MARGIN / SCALE;
    let costs = Costs {
        page: setting.price,
        young: setting.survey / 2,
        fast: Some(FastNode { size, kept }),
        ..Costs::default()
    };
    let machine = SimActuator::new(memory.clone(), clock.clone(), costs);
    let slow = || -> Vec<Vec<bool>> { (0..pattern.areas.len()).map(|area| machine.slow_pages(area)).collect() };
    let first = slow();
    let engine = Schemes::new(schemes(setting, fast)?, machine.clone(), machine.clone(), machine.clone())?;
    let rng = Pcg64Mcg::seed_from_u64(setting.seed);
    let mut monitor = Monitor::new(Attributes::default(), rng, memory.clone(), memory, engine);
    monitor.set_survey(SurveySettings { interval: setting.survey, ..SurveySettings::default() });
    let mut next = monitor.start()?;
    let mut seconds = Vec::new();
    let room = (size.saturating_sub(kept) / PAGE_SIZE) as usize;
    let mut known: Option<(Vec<Vec<f64>>, Shares)> = None;
    let mut phase = pattern.phase_at(Duration::ZERO);
    let mut phases = vec![0];
    while seconds.len() < setting.seconds as usize {
        let Next::Step { after } = next else { break };
        next = monitor.step(clock.pass(after))?;
        if clock.now() < SECOND * (seconds.len() as u32 + 1) {
            continue;
        }
        let now = clock.now();
        if !std::ptr::eq(phase, pattern.phase_at(now)) {
            (phase, known) = (pattern.phase_at(now), None);
            phases.push(seconds.len());
        }
        let (frequencies, shares) = known.get_or_insert_with(|| {
            let frequencies = frequencies(&pattern, now);
            let first_touch = served(&frequencies, &first);
            let best = best(&frequencies, room);
            (frequencies, Shares { first_touch, best, ..Shares::default() })
        });
        shares.moved = served(frequencies, &slow());
        seconds.push(*shares);
    }
    let [up, down] = [Moves::Hot, Moves::Cold].map(|direction| {
        let schemes = monitor.sink().schemes().zip(monitor.sink().reports());
        let of_direction = schemes.filter(|(scheme, _)| scheme.action.moves() == Some(direction));
        of_direction.fold([0; 3], |[applied, returned, watched], (_, Report { total, .. })| {
            [applied + total.applied_bytes, returned + total.returned_bytes, watched + total.watched_bytes]
        })
    });
    let of_machine = |bytes: u64| bytes * SCALE;
    Ok(Figures {
        seconds,
        phases,
        moved: [up[0], down[0]].map(of_machine),
        back: [up[1] + down[1], up[2] + down[2]].map(of_machine),
    })
}

/// A size such as `64 GiB` or `5 TiB`.
pub fn size_text(bytes: u64) -> String {
    if bytes.is_multiple_of(1 << 40) { format!("{} TiB", bytes >> 40) } else { format!("{} GiB", bytes / GIB) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn a_small_hot_set_comes_to_the_fast_tier() {
        let setting = Setting {
            work: Work::Hot,
            bytes: 8 * GIB,
            part: 4,
            rate: 400_000_000,
            time: SECOND / 20,
            price: Duration::from_micros(200),
            survey: SECOND,
            seconds: 40,
            seed: 1,
            changes: Vec::new(),
        };
        let figures = run(&setting).unwrap();
        let (first, last) = (figures.seconds[0], figures.seconds[39]);
        assert!(first.first_touch > 0.99 && last.best < 0.01, "{first:?} {last:?}");
        assert!(last.moved < NEAR && figures.converged().is_some(), "{last:?}");
        assert!(figures.moved[0] >= setting.bytes / 64 && figures.moved[1] > 0, "{:?}", figures.moved);
    }
}
