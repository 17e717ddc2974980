//! Measures what a USDT probe costs a process: `cargo run --release -p isotherm-probes --example usdt_cost`, as root.

#[cfg(target_arch = "x86_64")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::time::{Duration, Instant};

    use isotherm_probes::usdt::{MOST_HITS, UsdtCollector, UsdtTracer};
    use isotherm_testing::Marker;

    let cost = |target: &mut Marker, hits: u64| {
        let begin = Instant::now();
        target.request(&format!("ticks {hits}"));
        begin.elapsed().as_nanos() as f64 / hits as f64
    };
    let directory = tempfile::tempdir()?;
    let (program, _) = Marker::compile(directory.path())?;
    let (mut watched, mut other) = (Marker::start(&program), Marker::start(&program));
    println!("a probe that nobody watches: {:.1} ns", cost(&mut other, 10_000_000));

    let mut collector = UsdtCollector::new(UsdtTracer::open(vec!["demo:tick".parse()?])?)?;
    collector.watch(watched.pid(), false)?;
    while watched.request("watchers") == 0 {
        collector.next(Duration::from_millis(10))?;
    }
    println!("of a process that is not watched: {:.0} ns", cost(&mut other, 1_000_000));
    println!("of a process that is watched: {:.0} ns", cost(&mut watched, MOST_HITS));
    println!("after {MOST_HITS} hits: {:.0} ns", cost(&mut watched, 1_000_000));
    Ok(())
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("USDT probes are watched on x86-64 only");
}
