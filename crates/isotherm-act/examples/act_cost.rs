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

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:<28} {:>14} {:>14} {:>14}", "target", "first call", "each call", "stopped");
    for (name, script) in [("sleeps", "sleep 1000 & wait"), ("runs", "while :; do :; done")] {
        let mut target = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let measured = measure(&target);
        end(&mut target)?;
        let [first, each, stopped] = measured?;
        println!("{name:<28} {first:>14.1?} {each:>14.1?} {stopped:>14.1?}");
    }
    Ok(())
}

fn measure(target: &Child) -> Result<[Duration; 3], Box<dyn Error>> {
    sleep(Duration::from_millis(100));
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
    Ok([first, began.elapsed() / CALLS as u32, (inside.stopped() - stopped) / CALLS as u32])
}

/// Kills the process group that the target leads.
fn end(target: &mut Child) -> Result<(), Box<dyn Error>> {
    rustix::process::kill_process_group(rustix::process::Pid::from_child(target), rustix::process::Signal::KILL)?;
    target.wait()?;
    Ok(())
}
