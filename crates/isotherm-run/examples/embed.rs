//! Watches a process by an iterator and by a callback, changes the attributes while it runs, and applies a scheme.

use std::time::Duration;

use isotherm_run::core::scheme::{Action, ClosedInterval, Condition, Scheme};
use isotherm_run::core::{AttributeOptions, Granularity};
use isotherm_run::{Event, Need, RunConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pid = std::env::args().nth(1).ok_or("usage: embed PID")?.parse()?;

    // A scheme: count what has not been accessed for a second. `Action::PageOut` would reclaim it.
    let age = ClosedInterval::new(Duration::from_secs(1), Duration::MAX).ok_or("an empty interval")?;
    let rate = ClosedInterval::new(0.0, 0.0).ok_or("an empty interval")?;
    let cold = Scheme::new("cold", Condition { rate, age, ..Condition::ANY }, Action::Stat);

    let mut run = RunConfig::processes([pid]).duration(Duration::from_secs(4)).schemes(vec![cold]).prepare()?;
    // By callback, on a thread of its own.
    run.add_sink("activities", Need::Needed, |event: &Event| {
        if let Event::Activity(activity) = event {
            println!("{}: {} bytes", activity.schemes[0].name, activity.schemes[0].total.applied_bytes);
        }
        Ok(())
    });
    // By iterator.
    let events = run.subscribe();
    let session = run.start()?;
    for event in events {
        match event {
            Event::Snapshot(record) => {
                println!("{:?}: {} bytes in use", record.snapshot.time, record.snapshot.working_set())
            }
            Event::Attributes(attributes) if attributes.sampling() == Duration::from_millis(5) => {
                let slower =
                    AttributeOptions { sampling: Some(Duration::from_millis(20)), ..AttributeOptions::default() };
                session.control().set_attributes(slower.resolve(Granularity::Page)?);
            }
            _ => {}
        }
    }
    println!("{} snapshots", session.wait()?.snapshots);
    Ok(())
}
