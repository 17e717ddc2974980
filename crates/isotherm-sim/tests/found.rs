//! The monitor finds what a simulated pattern does.

use std::time::Duration;

use isotherm_core::{Attributes, BoxError, Monitor, Next, Sink, Snapshot};
use isotherm_sim::{Pattern, SimClock, SimMemory};
use rand_pcg::Pcg64Mcg;

#[derive(Default)]
struct Last(Snapshot);

impl Sink for Last {
    fn aggregated(&mut self, snapshot: &Snapshot) -> Result<(), BoxError> {
        self.0 = snapshot.clone();
        Ok(())
    }
}

#[test]
fn a_hot_spot_that_climbs_is_followed() {
    let clock = SimClock::default();
    let memory = SimMemory::new(Pattern::shipped("stairs").unwrap(), clock.clone(), 1);
    let areas: Vec<_> = memory.areas().collect();
    let attributes = Attributes::default();
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::new(1), memory.clone(), memory, Last::default());
    let mut next = monitor.start().unwrap();
    for step in 0..4 {
        // Until the hot spot climbs on.
        while let Next::Step { after } = next
            && clock.now() < Duration::from_secs(3 * (step + 1))
        {
            next = monitor.step(clock.pass(after)).unwrap();
        }
        let snapshot = &monitor.sink().0;
        let hot = || snapshot.targets[0].regions.iter().filter(|r| r.access_rate(snapshot.samples) >= 0.5);
        let found: u64 = hot().map(|r| r.range.size()).sum();
        let right: u64 = hot().filter_map(|r| r.range.intersection(areas[2 * step as usize])).map(|r| r.size()).sum();
        let truly_hot = areas[2 * step as usize].size();
        assert!(right as f64 >= 0.95 * truly_hot as f64, "step {step}: {right} of {truly_hot} bytes are found");
        assert!(right as f64 >= 0.95 * found as f64, "step {step}: {right} of {found} bytes are right");
    }
}

#[test]
fn samples_go_on_while_no_page_is_chosen_and_tell_low_frequencies() {
    let pattern = r#"
about = "twice a second"
[[area]]
name = "all"
size = "64 MiB"
[[phase]]
time = "100s"
touch = [{ area = "all", every = "500ms" }]
"#;
    let clock = SimClock::default();
    let memory = SimMemory::new(Pattern::parse(pattern).unwrap(), clock.clone(), 1);
    let ms = Duration::from_millis;
    let attributes = Attributes::default().with_intervals(ms(10), ms(1000)).unwrap();
    let mut monitor = Monitor::new(attributes, Pcg64Mcg::new(1), memory.clone(), memory, Last::default());
    monitor.read_by_lengths();
    // Of the rounds of an aggregation, one has samples.
    monitor.set_sampling_stride(100);
    let mut next = monitor.start().unwrap();
    while let Next::Step { after } = next
        && clock.now() < Duration::from_secs(30)
    {
        next = monitor.step(clock.pass(after)).unwrap();
    }
    let regions = &monitor.sink().0.targets[0].regions;
    let is_right = |hz: f64| (1.4..2.9).contains(&hz);
    let right = regions.iter().filter(|region| region.frequency.is_some_and(|frequency| is_right(frequency.hz())));
    let (right, all): (u64, u64) =
        (right.map(|region| region.range.size()).sum(), regions.iter().map(|region| region.range.size()).sum());
    // By samples of 10 ms alone, nearly nothing has an access.
    assert!(right * 2 >= all, "{right} of {all} bytes");
}
