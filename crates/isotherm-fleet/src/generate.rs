//! A made fleet: a dataset whose answers are known.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;

use rand::Rng;
use rand_pcg::Pcg32;
use serde::Serialize;

use crate::dataset::Dataset;
use crate::error::FleetError;
use crate::row::{Row, kind};
use crate::rows::SHARED_SERVICE;

const PAGE: i64 = 4096;
const DAY: i64 = 86_400;
const MINUTES: i64 = 1440;

/// A fleet to make.
#[derive(Clone, Copy, Debug)]
pub struct Fleet {
    /// The number of hosts.
    pub hosts: u32,
    /// The number of days.
    pub days: u32,
    /// The number of services, each of which runs on each host.
    pub services: u32,
    /// The first day, in days since the Unix epoch.
    pub first_day: i64,
    /// Each seed makes another fleet, and always the same one.
    pub seed: u64,
}

/// The answers about a made fleet. They are counted from the rules by which it is made, and not from its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Truth {
    /// By service.
    pub services: BTreeMap<String, ServiceTruth>,
    /// By host.
    pub hosts: BTreeMap<String, HostTruth>,
    /// The most bytes in memory and in use within half an hour, by service and host.
    pub peaks: BTreeMap<String, BTreeMap<String, (i64, i64)>>,
}

/// What is true of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServiceTruth {
    /// Bytes in memory, summed over minutes.
    pub present: i64,
    /// Bytes that were idle for ten minutes, summed over minutes.
    pub idle: i64,
    /// Bytes for which that is not known, summed over minutes.
    pub unknown: i64,
    /// Bytes in swap that are known, summed over minutes.
    pub swapped: i64,
    /// Bytes in memory, summed over the minutes of each day.
    pub days: Vec<i64>,
    /// Bytes accessed 10 to 100, 1 to 10, and less than 0.01 times a second, summed over minutes.
    pub classes: [i64; 3],
    /// Accesses to each of these.
    pub accesses: [i64; 3],
}

/// What is true of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostTruth {
    /// Its name, which another host can have.
    pub name: String,
    /// Its memory, in bytes.
    pub memory: i64,
    /// The most bytes in memory, and in use within half an hour.
    pub peak: (i64, i64),
    /// CPU time of isotherm, in nanoseconds.
    pub cpu_ns: i64,
    /// Bytes that schemes freed.
    pub freed: i64,
    /// Bytes that came back.
    pub returned: i64,
}

/// A service of a made fleet.
struct Service {
    name: Arc<str>,
    pages: i64,
    /// Pages that are added each day.
    growth: i64,
    /// The share of the memory that is in use, in per cent.
    used: i64,
    /// Whether it is not known how much is in swap.
    swap_is_unknown: bool,
    /// What tells its chances from those of others.
    salt: u64,
}

impl Service {
    fn new(fleet: &Fleet, nth: u32) -> Self {
        let mut random = Pcg32::new(fleet.seed, u64::from(nth));
        let mut below = |most: u32| i64::from(random.next_u32() % most);
        let name = if nth == 0 { "shop/<i>cart</i> & \"co\"".into() } else { format!("service-{nth}").into() };
        Self {
            name,
            pages: 1000 + below(100_000),
            growth: below(200) - 100,
            used: 5 + below(70),
            swap_is_unknown: nth % 7 == 3,
            salt: mixed(fleet.seed << 32 ^ u64::from(nth)).rotate_left(17),
        }
    }

    /// Pages in memory. They differ from minute to minute by chance, so that files are no smaller than real ones.
    fn present(&self, host: u32, minute: i64) -> i64 {
        let chance = mixed(self.salt ^ u64::from(host) << 32 ^ minute.unsigned_abs()) % 1024;
        self.pages + i64::from(host % 113) * 3 + self.growth * (minute / MINUTES) + chance as i64
    }

    /// Pages in use within half an hour, within ten minutes, and those that cannot be observed.
    fn parts(&self, present: i64) -> [i64; 3] {
        let used = present * self.used / 100;
        [used, used * 9 / 10, present / 64]
    }
}

/// Mixes the bits of a number (the finaliser of SplitMix64: G. Steele, D. Lea, C. Flood, 2014).
fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// Pages of all processes of a host that count twice.
fn shared(host: u32) -> i64 {
    50 + i64::from(host % 7)
}

/// Since when the windows of ten minutes and of half an hour are known, in minutes.
const WATCHED: [i64; 2] = [10, 30];

impl Fleet {
    fn services(&self) -> Vec<Service> {
        (0..self.services).map(|nth| Service::new(self, nth)).collect()
    }

    fn host(&self, nth: u32) -> String {
        format!("{:016x}{nth:016x}", self.seed)
    }

    /// The second host has the name of the first one.
    fn host_name(nth: u32) -> String {
        format!("node-{}", if nth == 1 { 0 } else { nth })
    }

    fn memory(nth: u32) -> i64 {
        (i64::from(nth % 4) + 1) * (16 << 30)
    }

    /// The answers.
    pub fn truth(&self) -> Truth {
        let services = self.services();
        let mut truth = Truth::default();
        let minutes = i64::from(self.days) * MINUTES;
        truth.services.insert(SHARED_SERVICE.into(), ServiceTruth::default());
        for nth in 0..self.hosts {
            let id = self.host(nth);
            let twice = shared(nth);
            let correction = truth.services.entry(SHARED_SERVICE.into()).or_default();
            // Pages in memory and in use, by minute.
            let mut of_host = vec![(-twice, 0); minutes as usize];
            for (minute, of_minute) in (0..minutes).zip(&mut of_host) {
                correction.add_present(minute, -twice);
                if minute < WATCHED[0] {
                    correction.unknown -= twice * PAGE;
                }
                if minute < WATCHED[1] {
                    of_minute.1 = -twice;
                }
            }
            for service in &services {
                let of = truth.services.entry(service.name.to_string()).or_default();
                let mut peak = (0, 0);
                for (minute, of_minute) in (0..minutes).zip(&mut of_host) {
                    let present = service.present(nth, minute);
                    let used = of.add(service, minute, present);
                    *of_minute = (of_minute.0 + present, of_minute.1 + used);
                    peak = (peak.0.max(present), peak.1.max(used));
                }
                let peaks = truth.peaks.entry(service.name.to_string()).or_default();
                peaks.insert(id.clone(), (peak.0 * PAGE, peak.1 * PAGE));
            }
            let peak = of_host.into_iter().fold((0, 0), |peak: (i64, i64), of| (peak.0.max(of.0), peak.1.max(of.1)));
            let host = HostTruth {
                name: Self::host_name(nth),
                memory: Self::memory(nth),
                peak: (peak.0 * PAGE, peak.1 * PAGE),
                cpu_ns: minutes * cpu_ns(nth),
                freed: minutes * freed(nth),
                returned: minutes * freed(nth) / 8,
            };
            truth.hosts.insert(id, host);
        }
        truth
    }
}

impl ServiceTruth {
    /// Adds a minute of a host with so many pages in memory. Returns those that are in use within half an hour.
    fn add(&mut self, service: &Service, minute: i64, present: i64) -> i64 {
        let [used, recent, unseen] = service.parts(present);
        self.add_present(minute, present);
        if minute < WATCHED[0] {
            self.unknown += present * PAGE;
        } else {
            self.idle += (present - unseen - recent) * PAGE;
            self.unknown += unseen * PAGE;
        }
        if !service.swap_is_unknown {
            self.swapped += service.pages / 8 * PAGE;
        }
        let classes = [used / 2, used - used / 2, present - used];
        let rates = [30, 3, 0];
        for class in 0..3 {
            self.classes[class] += classes[class] * PAGE;
            self.accesses[class] += classes[class] * rates[class] * 60;
        }
        if minute < WATCHED[1] { present } else { used + unseen }
    }

    fn add_present(&mut self, minute: i64, pages: i64) {
        self.present += pages * PAGE;
        let day = (minute / MINUTES) as usize;
        if self.days.len() <= day {
            self.days.resize(day + 1, 0);
        }
        self.days[day] += pages * PAGE;
    }
}

fn cpu_ns(host: u32) -> i64 {
    400_000_000 + i64::from(host % 100) * 1_000_000
}

fn freed(host: u32) -> i64 {
    i64::from(host % 5) * 8 * PAGE
}

/// Writes a made fleet into a dataset, a file for each host and day, with a thread for each processor, which holds the
/// rows of one file. `written` is called with the number of files that are written, in any order.
///
/// # Errors
/// If it cannot be written.
pub fn generate(dataset: &Dataset, fleet: &Fleet, written: &(dyn Fn(u64) + Sync)) -> Result<(), FleetError> {
    let services = fleet.services();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let all = u64::from(fleet.hosts) * u64::from(fleet.days);
    let work = || {
        loop {
            let nth = next.fetch_add(1, Relaxed);
            if nth >= all {
                return Ok(());
            }
            let (host, day) = ((nth / u64::from(fleet.days)) as u32, (nth % u64::from(fleet.days)) as i64);
            let wrote = write_day(dataset, fleet, &services, host, day);
            if wrote.is_err() {
                // The others end as well.
                next.store(all, Relaxed);
                return wrote;
            }
            written(done.fetch_add(1, Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let end = |thread: ScopedJoinHandle<'_, _>| thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        // The scope waits for all of them, also after an error.
        threads.into_iter().try_for_each(end)
    })
}

/// Writes a day of a host.
fn write_day(dataset: &Dataset, fleet: &Fleet, services: &[Service], host: u32, day: i64) -> Result<(), FleetError> {
    let start = (fleet.first_day + day) * DAY;
    let mut rows = Vec::with_capacity(MINUTES as usize * (services.len() + 3));
    for of_day in 0..MINUTES {
        minute_rows(&mut rows, host, (day * MINUTES + of_day, start + of_day * 60), services);
    }
    dataset.write_day(&fleet.host(host), start, &rows)
}

/// The rows of a minute of a host. `since` is since the start of the fleet, in minutes.
fn minute_rows(rows: &mut Vec<Row>, host: u32, (since, minute): (i64, i64), services: &[Service]) {
    let group: Arc<str> = "machine".into();
    let basis = Row {
        minute,
        host_name: Fleet::host_name(host).into(),
        boot: "b00t".into(),
        group_name: Arc::clone(&group),
        service: group,
        ..Row::default()
    };
    rows.extend(services.iter().map(|service| service_row(&basis, host, since, service)));
    rows.push(Row {
        kind: kind::SHARED.into(),
        service: SHARED_SERVICE.into(),
        present_bytes: Some(-shared(host) * PAGE),
        touched_bytes: Some(0),
        unobservable_bytes: Some(0),
        unknown_bytes: Some(0),
        within_600s_bytes: (since >= WATCHED[0]).then_some(-shared(host) * PAGE),
        within_1800s_bytes: (since >= WATCHED[1]).then_some(0),
        ..basis.clone()
    });
    rows.push(Row {
        kind: kind::GROUP.into(),
        freed_bytes: Some(freed(host)),
        watched_bytes: Some(freed(host) / 2),
        returned_bytes: Some(freed(host) / 8),
        moved_bytes: Some(0),
        cpu_ns: Some(cpu_ns(host)),
        reads: Some(60_000),
        clears: Some(6_000),
        ..basis.clone()
    });
    rows.push(Row {
        kind: kind::HOST.into(),
        group_name: "".into(),
        service: "".into(),
        host_memory_bytes: Some(Fleet::memory(host)),
        host_available_bytes: Some(Fleet::memory(host) / 2),
        host_swapped_bytes: Some(0),
        ..basis
    });
}

fn service_row(basis: &Row, host: u32, since: i64, service: &Service) -> Row {
    let present = service.present(host, since);
    let [used, recent, unseen] = service.parts(present);
    let bytes = |pages: i64| Some(pages * PAGE);
    let [hot, warm] = [used / 2, used - used / 2];
    Row {
        kind: kind::MEMORY.into(),
        service: Arc::clone(&service.name),
        cgroup: Some("/made.slice".into()),
        command: Some("made".into()),
        present_bytes: bytes(present),
        touched_bytes: bytes(used / 4),
        unobservable_bytes: bytes(unseen),
        unknown_bytes: bytes(0),
        swapped_bytes: if service.swap_is_unknown { None } else { bytes(service.pages / 8) },
        swapped_bounds: service.swap_is_unknown.into(),
        lazily_freed_bytes: bytes(0),
        within_60s_bytes: bytes(used / 3),
        within_600s_bytes: bytes(recent).filter(|_| since >= WATCHED[0]),
        within_1800s_bytes: bytes(used).filter(|_| since >= WATCHED[1]),
        hz_unknown_bytes: bytes(0),
        hz_0_bytes: bytes(present - used),
        hz_001_bytes: bytes(0),
        hz_01_bytes: bytes(0),
        hz_1_bytes: bytes(warm),
        hz_10_bytes: bytes(hot),
        hz_100_bytes: bytes(0),
        hz_1000_bytes: bytes(0),
        hz_0_accesses: Some(0),
        hz_001_accesses: Some(0),
        hz_01_accesses: Some(0),
        hz_1_accesses: Some(warm * 3 * 60),
        hz_10_accesses: Some(hot * 30 * 60),
        hz_100_accesses: Some(0),
        hz_1000_accesses: Some(0),
        ..basis.clone()
    }
}
