//! The CPU time of a scan by `isotherm idle`, for several sizes of memory.

#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use isotherm_bench::pairs::median;
use isotherm_bench::table::table;
use isotherm_core::units::setting;
use serde::{Deserialize, Serialize};

const GIB: u64 = 1 << 30;

/// The period that the CPU time of a scan is compared with, in milliseconds. The cost of a scan does not
/// depend on the measured period.
const MINUTE_MS: f64 = 60e3;

/// Measure the CPU time of a scan by `isotherm idle`, and its share of a period of a minute
///
/// A process has memory in pages of 4 KiB and touches a quarter of it every five seconds. Idle page tracking
/// scans all memory of the machine; page tables are scanned of the process only.
#[derive(Parser)]
struct Options {
    /// Sizes of the process's memory in GiB
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "1,2,4")]
    sizes: Vec<u64>,
    /// Methods, as `isotherm idle --probe` takes them
    #[arg(long, value_name = "WAYS", value_delimiter = ',', default_value = "bpf")]
    ways: Vec<Method>,
    /// Time between two scans, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    period: u64,
    /// Measured periods per size and method
    #[arg(long, value_name = "N", default_value_t = 2)]
    count: u32,
    /// Name of the place of the measurement, for the table
    #[arg(long, value_name = "NAME", default_value = "here")]
    place: String,
    /// Path of isotherm
    #[arg(long, default_value = "target/release/isotherm")]
    isotherm: PathBuf,
    /// Write the figures to this file as well
    #[arg(long, value_name = "FILE", default_value = "target/bench/idle.json")]
    json: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
enum Method {
    /// Idle page tracking: all memory of the machine.
    Idle,
    /// Page tables: the memory of the process.
    Bpf,
}

/// What one size cost in one way.
#[derive(Debug, Serialize)]
struct Line {
    place: String,
    kernel: String,
    way: Method,
    bytes: u64,
    period_s: u64,
    looks: usize,
    /// User memory that was scanned, of the process and of others.
    looked_at_bytes: u64,
    /// CPU time of a scan: median, minimum, maximum.
    cpu_ms: [f64; 3],
    /// The median in per cent of one CPU over a minute.
    cpu_percent_of_a_minute: f64,
    /// Duration of a scan; the median.
    wall_ms: f64,
    /// Idle share of the process's memory; page tables only.
    idle_share: Option<f64>,
}

/// The parts of a report that are used here.
#[derive(Deserialize)]
struct Report {
    cost: Cost,
    total: Figures,
}

#[derive(Deserialize)]
struct Cost {
    cpu_ns: u64,
    wall_ns: u64,
}

#[derive(Deserialize)]
struct Figures {
    size_bytes: u64,
    idle_bytes: u64,
    unevictable_bytes: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let mut lines = Vec::new();
    for &size in &options.sizes {
        let target = Target::start(&options.isotherm, size)?;
        for &way in &options.ways {
            eprintln!("{size} GiB by {way:?}, {} s", options.period * u64::from(options.count));
            lines.push(measure(&options, &target, size, way)?);
        }
    }
    let rows = lines.iter().map(|line| {
        let [median, least, most] = line.cpu_ms;
        vec![
            line.place.clone(),
            line.kernel.clone(),
            format!("{:?}", line.way).to_lowercase(),
            setting::bytes(line.bytes),
            setting::bytes(line.looked_at_bytes),
            format!("{median:.1} ({least:.1} to {most:.1})"),
            format!("{:.1}", line.wall_ms),
            format!("{:.3}", line.cpu_percent_of_a_minute),
        ]
    });
    let header = [
        "place",
        "kernel",
        "method",
        "process",
        "scanned",
        "CPU ms a scan (min to max)",
        "wall ms",
        "CPU % of a minute",
    ];
    println!("{}", table(&header, 3, rows));
    if let Some(parent) = options.json.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(&options.json, serde_json::to_string_pretty(&lines)?)
        .with_context(|| format!("{} cannot be written", options.json.display()))
}

fn measure(options: &Options, target: &Target, size: u64, way: Method) -> Result<Line> {
    let mut isotherm = Command::new(&options.isotherm);
    isotherm.args(["idle", "--quiet", "--format", "json", "--count", &options.count.to_string()]);
    isotherm.args(["--interval", &format!("{}s", options.period)]);
    match way {
        Method::Idle => isotherm.args(["--probe", "idle"]),
        Method::Bpf => isotherm.args(["--probe", "bpf", "--by", "cgroup", "--pid", &target.0.id().to_string()]),
    };
    let ran = isotherm.stderr(Stdio::inherit()).output().context("isotherm cannot be started")?;
    ensure!(ran.status.success(), "isotherm idle failed");
    let out = String::from_utf8(ran.stdout)?;
    let reports: Vec<Report> = out.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let last = reports.last().context("isotherm idle said nothing")?;
    let ms = |ns: u64| Duration::from_nanos(ns).as_secs_f64() * 1e3;
    let mut cpu: Vec<f64> = reports.iter().map(|report| ms(report.cost.cpu_ns)).collect();
    let mut wall: Vec<f64> = reports.iter().map(|report| ms(report.cost.wall_ns)).collect();
    let middle = median(&mut cpu);
    Ok(Line {
        place: options.place.clone(),
        kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
        way,
        bytes: size * GIB,
        period_s: options.period,
        looks: reports.len(),
        looked_at_bytes: last.total.size_bytes + last.total.unevictable_bytes,
        // `median` has sorted it.
        cpu_ms: [middle, cpu[0], cpu[cpu.len() - 1]],
        cpu_percent_of_a_minute: middle / MINUTE_MS * 100.0,
        wall_ms: median(&mut wall),
        idle_share: (way == Method::Bpf).then(|| last.total.idle_bytes as f64 / last.total.size_bytes as f64),
    })
}

/// A process that uses a quarter of its memory.
struct Target(Child);

impl Target {
    fn start(isotherm: &Path, gib: u64) -> Result<Self> {
        let mut file = tempfile::Builder::new().suffix(".toml").tempfile()?;
        let text = format!(
            "about = \"a quarter in use\"\n[[area]]\nname = \"cold\"\nsize = \"{} MiB\"\n\
             [[area]]\nname = \"hot\"\nsize = \"{} MiB\"\n\
             [[phase]]\ntime = \"10h\"\ntouch = [{{ area = \"hot\", every = \"5s\" }}]\n",
            gib * 768,
            gib * 256
        );
        std::io::Write::write_all(&mut file, text.as_bytes())?;
        let child = Command::new(isotherm)
            .arg("workload")
            .arg(file.path())
            .arg("--announce")
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{} cannot be started", isotherm.display()))?;
        let mut target = Self(child);
        let mut said = String::new();
        // The first line says that all memory is there. The output stays open: the workload ends when it is closed.
        let out = target.0.stdout.as_mut().context("the workload has no output")?;
        BufReader::new(out).read_line(&mut said)?;
        ensure!(!said.is_empty(), "the workload ended at once: is there enough memory?");
        Ok(target)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
