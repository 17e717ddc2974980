//! The schemes of `isotherm tier run` on simulated memory, from 64 GiB to 5 TiB.

#![forbid(unsafe_code)]

use std::io::{Write, stdout};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use isotherm_bench::table::table;
use isotherm_bench::tiering::simulated::{Setting, Work, run, size_text};
use isotherm_core::units;

/// Measure what share of the accesses slow memory serves in simulated machines, with and without isotherm
///
/// A simulated page stands for 2 MiB: for a machine all of whose memory is in huge pages.
#[derive(Parser)]
struct Options {
    /// Only this work, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum)]
    work: Vec<Work>,
    /// Sizes of the memory, separated by commas
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = units::parse_bytes, default_value = "64G")]
    sizes: Vec<u64>,
    /// The fast tier is one part in this many of the memory, separated by commas
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [2, 4, 16])]
    parts: Vec<u64>,
    /// How many bytes are moved in a second at most
    #[arg(long, value_name = "SIZE", value_parser = units::parse_bytes, default_value = "200M")]
    rate: u64,
    /// The share of one CPU that watching and moving take together at most
    #[arg(long, value_name = "SHARE", value_parser = units::parse_share, default_value = "10%")]
    cpu_budget: f64,
    /// The time of a move of 2 MiB
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "200us")]
    price: Duration,
    /// The time from one survey to the next
    #[arg(long, value_name = "TIME", value_parser = units::parse_duration, default_value = "1s")]
    survey: Duration,
    /// For how long each simulation runs
    #[arg(long, value_name = "S", default_value_t = 120)]
    seconds: u64,
    /// The seed of what is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Replace text of the schemes, for experiments, such as 'min: 10s=min: 3s'
    #[arg(long, value_name = "FROM=TO", value_parser = change)]
    change: Vec<(String, String)>,
}

fn change(text: &str) -> Result<(String, String), String> {
    let (from, to) = text.split_once('=').ok_or("give the text, = and what replaces it")?;
    Ok((from.into(), to.into()))
}

fn main() -> Result<()> {
    let options = Options::parse();
    let all = [Work::Hot, Work::Zipfian, Work::Scan, Work::Moving];
    let chosen = if options.work.is_empty() { &all[..] } else { &options.work };
    let header = [
        "work",
        "memory",
        "fast",
        "first touch %",
        "isotherm %",
        "late",
        "best %",
        "at 30 s",
        "converged, s",
        "in place, s",
        "up, GiB",
        "down",
        "back %",
        "took, s",
    ];
    let mut rows = Vec::new();
    for &work in chosen {
        for &bytes in &options.sizes {
            for &part in &options.parts {
                let setting = Setting {
                    work,
                    bytes,
                    part,
                    rate: options.rate,
                    time: Duration::from_secs(1).mul_f64(options.cpu_budget / 2.0),
                    price: options.price,
                    survey: options.survey,
                    seconds: options.seconds,
                    seed: options.seed,
                    changes: options.change.clone(),
                };
                let began = Instant::now();
                rows.push(row(&setting, began)?);
                eprintln!("{}", rows[rows.len() - 1].join("  "));
            }
        }
    }
    Ok(writeln!(stdout(), "{}", table(&header, 3, rows))?)
}

fn row(setting: &Setting, began: Instant) -> Result<Vec<String>> {
    let figures = run(setting)?;
    let (mean, late) = (figures.mean(0), figures.mean(figures.seconds.len() * 3 / 4));
    let at_30 = figures.seconds.get(29).map_or("-".into(), |shares| percent(shares.moved));
    let gib = |bytes: u64| format!("{:.1}", bytes as f64 / (1_u64 << 30) as f64);
    let [back, watched] = figures.back;
    Ok(vec![
        setting.work.name().into(),
        size_text(setting.bytes),
        format!("1/{}", setting.part),
        percent(mean.first_touch),
        percent(mean.moved),
        percent(late.moved),
        percent(mean.best),
        at_30,
        figures.converged().map_or("never".into(), |second| second.to_string()),
        figures.in_place().map_or("never".into(), |seconds| seconds.to_string()),
        gib(figures.moved[0]),
        gib(figures.moved[1]),
        if watched > 0 { percent(back as f64 / watched as f64) } else { "-".into() },
        began.elapsed().as_secs().to_string(),
    ])
}

fn percent(share: f64) -> String {
    format!("{:.1}", share.max(0.0) * 100.0)
}
