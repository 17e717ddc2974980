//! Measures what the tracepoints of `--stacks` cost a system call of a process that is not watched.

use std::time::Instant;

use isotherm_probes::stacks::StackTracer;

/// System calls in one measurement.
const CALLS: u32 = 1_000_000;

/// The least time of a system call in ten measurements, in nanoseconds.
fn measure() -> f64 {
    let time = |_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| _ = rustix::process::getppid());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    (0..10).map(time).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<(), isotherm_core::BoxError> {
    let without = measure();
    let tracer = StackTracer::open()?;
    let with = measure();
    drop(tracer);
    println!("getppid(): {without:.0} ns without, {with:.0} ns with the tracepoints of system calls in use");
    Ok(())
}
