//! Prints what each survey of a process finds: how much of it is in memory, and how much was accessed within 5 s.
//!
//! Usage: `survey PID [SECONDS]`

use std::time::Duration;

use isotherm_run::{Event, RunConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let pid: u32 = arguments.next().ok_or("give a process ID")?.parse()?;
    let seconds: u64 = arguments.next().map_or(Ok(10), |seconds| seconds.parse())?;
    let mut run = RunConfig::processes([pid]).duration(Duration::from_secs(seconds)).prepare()?;
    let events = run.subscribe();
    let session = run.start()?;
    let mut cpu = Duration::ZERO;
    for event in events {
        match event {
            Event::Survey(record) => {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                let cost = record.survey.cost;
                for total in record.survey.targets.iter().map(|target| target.total()) {
                    println!(
                        "{:6.2} s: {:7.1} MiB present, {:7.1} touched, {:7.1} within 5 s, {:6.1} unknown, {:6.1} \
                         unobservable; {} clears, {:?} of CPU",
                        record.survey.time.as_secs_f64(),
                        mib(total.figures.present),
                        mib(total.figures.touched),
                        mib(total.within[2]),
                        mib(total.figures.unknown),
                        mib(total.figures.unobservable),
                        cost.clears,
                        record.cpu.unwrap_or_default(),
                    );
                }
            }
            Event::Snapshot(record) => cpu += Duration::from_nanos(record.cost.map_or(0, |cost| cost.cpu_ns)),
            _ => {}
        }
    }
    session.wait()?;
    println!("the monitor took {:.2} % of one CPU", cpu.as_secs_f64() / seconds as f64 * 100.0);
    Ok(())
}
