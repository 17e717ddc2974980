//! Measures the cost of the bpf probe. Run it as root:
//! `cargo run --release -p isotherm-probes --example bpf_cost`.
//!
//! The target is a second process of this program that holds 1 GiB. Most figures are medians of many repetitions.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use isotherm_core::{AccessProbe, BoxError, Layout, Observation, Sample, TargetSpace};
use isotherm_kernel::Process;
use isotherm_probes::bpf::BpfProbe;
use rand::{RngExt, SeedableRng};

const PAGE: u64 = 4096;
const SIZE: u64 = 1 << 30;
const HOT: u64 = SIZE / 10;
const ROUNDS: usize = 400;

fn main() -> Result<(), BoxError> {
    if std::env::args().nth(1).as_deref() == Some("target") {
        return be_watched();
    }
    let mut child =
        Command::new(std::env::current_exe()?).arg("target").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let result = measure(&mut child);
    child.kill()?;
    child.wait()?;
    result
}

/// Holds 1 GiB of memory. Each command on the standard input names a number of bytes to write to, once or forever.
fn be_watched() -> Result<(), BoxError> {
    let mut memory = vec![0u8; SIZE as usize];
    println!("{}", memory.as_ptr().addr().next_multiple_of(PAGE as usize));
    let mut write =
        |bytes: usize| memory[..bytes].iter_mut().step_by(PAGE as usize).for_each(|byte| *black_box(byte) ^= 1);
    for line in std::io::stdin().lines() {
        let line = line?;
        let (times, bytes) = line.split_once(' ').ok_or("not an order")?;
        write(bytes.parse()?);
        print!(".");
        std::io::stdout().flush()?;
        if times == "forever" {
            let bytes = bytes.parse()?;
            loop {
                write(bytes);
            }
        }
    }
    Ok(())
}

fn measure(child: &mut Child) -> Result<(), BoxError> {
    let mut orders = child.stdin.take().ok_or("no stdin")?;
    let mut answers = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    let mut line = String::new();
    answers.read_line(&mut line)?;
    let start: u64 = line.trim().parse()?;
    let mut write = |times: &str, bytes: u64| -> std::io::Result<()> {
        writeln!(orders, "{times} {bytes}")?;
        answers.read_exact(&mut [0])
    };
    write("once", SIZE)?;

    let process = Process::open(child.id())?;
    let (target, mappings) = (process.id(), process.mappings()?);
    let space = [TargetSpace { id: target, layout: Layout::Process, mappings }];
    let mut rng = rand_pcg::Pcg32::seed_from_u64(1);
    let mut random = |count: usize, of: u64| -> Vec<Sample> {
        (0..count).map(|_| Sample { target, addr: start + rng.random_range(0..of / PAGE - 1) * PAGE }).collect()
    };

    let began = Instant::now();
    let mut probe = BpfProbe::open()?;
    println!("open                                      {:>9.1?}", began.elapsed());
    let began = Instant::now();
    probe.update(&space)?;
    println!("first update, with the clear of 1 GiB     {:>9.1?}", began.elapsed());
    println!("a further update                          {:>9.1?}", median(200, |_| probe.update(&space))?);

    for count in [1, 10, 1000, 16384] {
        let samples = random(count, SIZE);
        let mut answers = vec![Observation::Idle; count];
        let time = median(300, |_| probe.read(&samples, &mut answers))?;
        println!("read {count:>5} samples                        {time:>9.1?}, {} each", each(time, count));
    }
    for count in [1000, 1] {
        let mut times = Vec::new();
        for _ in 0..15 {
            write("once", SIZE)?;
            let samples = random(count, SIZE);
            let before = probe.clears();
            let began = Instant::now();
            probe.clear(&samples)?;
            times.push((began.elapsed(), (probe.clears() - before) as usize));
        }
        times.sort();
        let (time, cleared) = times[times.len() / 2];
        println!(
            "clear {count:>4} samples, {cleared} of them accessed   {time:>9.1?}, {} each",
            each(time, cleared.max(1))
        );
    }

    // Rounds like those of the monitor: 1,000 regions, with a tenth of the memory in constant use.
    probe.update(&[])?;
    probe.update(&space)?;
    write("forever", HOT)?;
    let mut times = Vec::new();
    let mut answers = vec![Observation::Idle; 1000];
    let (mut counts, before) = ([0; 3], probe.clears());
    for _ in 0..ROUNDS {
        let samples = random(1000, SIZE);
        let began = Instant::now();
        probe.clear(&samples)?;
        let clear = began.elapsed();
        std::thread::sleep(Duration::from_millis(5));
        let began = Instant::now();
        probe.read(&samples, &mut answers)?;
        times.push((clear, began.elapsed()));
        answers.iter().for_each(|&answer| counts[answer as usize] += 1);
    }
    let middle = |mut times: Vec<Duration>| {
        times.sort();
        times[ROUNDS / 2]
    };
    let clear = middle(times.iter().map(|t| t.0).collect());
    let read = middle(times.iter().map(|t| t.1).collect());
    let cleared = (probe.clears() - before) as usize / ROUNDS;
    println!("rounds of 1000 regions, a tenth of the memory in use on another processor:");
    println!("  clear ({cleared} of them accessed)           {clear:>9.1?}, {} each", each(clear, cleared.max(1)));
    println!("  read                                    {read:>9.1?}");
    let [idle, accessed, unobservable] = counts;
    println!("  of {} answers {idle} idle, {accessed} accessed, {unobservable} unobservable", ROUNDS * 1000);
    Ok(())
}

fn each(time: Duration, count: usize) -> String {
    format!("{:.2} µs", time.as_secs_f64() * 1e6 / count as f64)
}

fn median<E>(turns: usize, mut what: impl FnMut(usize) -> Result<(), E>) -> Result<Duration, E> {
    let mut times = Vec::with_capacity(turns);
    for turn in 0..turns {
        let began = Instant::now();
        what(turn)?;
        times.push(began.elapsed());
    }
    times.sort();
    Ok(times[turns / 2])
}
