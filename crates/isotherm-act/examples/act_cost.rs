//! Measures what a call inside a process costs the process: how long a call takes, and how long the process is stopped.
//! See docs/acting.md.

use std::error::Error;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use isotherm_act::{Inside, InsideCall};
use isotherm_kernel::Process;

const CALLS: usize = 1000;

/// Neighbours differ in what may be done with them, so that the kernel does not merge them.
const MANY_MAPPINGS: &str = "
import mmap, time
kept = [mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=1 + 2 * (i % 2)) for i in range(30000)]
while True: time.sleep(0.001)
";

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<16} {:>12} {:>12} {:>12} {:>14}", "target", "first call", "each call", "stopped", "stopped at most");
    let targets = [
        ("sleeps", "sh", "sleep 1000 & wait"),
        ("runs", "sh", "while :; do :; done"),
        ("30,000 mappings", "python3", MANY_MAPPINGS),
    ];
    for (name, program, script) in targets {
        let mut target = Command::new(program)
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let measured = measure(&target);
        end(&mut target)?;
        let [first, each, stopped, most] = measured?;
        println!("{name:<16} {first:>12.1?} {each:>12.1?} {stopped:>12.1?} {most:>14.1?}");
    }
    Ok(())
}

fn measure(target: &Child) -> Result<[Duration; 4], Box<dyn Error>> {
    // Python takes a while for its mappings.
    sleep(Duration::from_secs(2));
    let mappings = Process::open(target.id())?.mappings()?;
    let heap = mappings.iter().find(|mapping| &*mapping.name == "[heap]").ok_or("the target has no heap")?.range;
    let mut inside = Inside::new();
    let mut results = Vec::new();
    let began = Instant::now();
    inside.make(target.id(), InsideCall::NoHugePage, &[heap], &mut results)?;
    let first = began.elapsed();
    let (began, stopped) = (Instant::now(), inside.stopped());
    for turn in 0..CALLS {
        let call = if turn % 2 == 0 { InsideCall::HugePage } else { InsideCall::NoHugePage };
        inside.make(target.id(), call, &[heap], &mut results)?;
    }
    Ok([first, began.elapsed() / CALLS as u32, (inside.stopped() - stopped) / CALLS as u32, inside.longest_stop()])
}

/// Kills the process group that the target leads.
fn end(target: &mut Child) -> Result<(), Box<dyn Error>> {
    rustix::process::kill_process_group(rustix::process::Pid::from_child(target), rustix::process::Signal::KILL)?;
    target.wait()?;
    Ok(())
}
