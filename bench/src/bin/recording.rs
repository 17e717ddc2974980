//! Makes the recordings that `bench/report` reads: simulated memory of 1 GiB, with surveys. The same options give the
//! same recording, but for the CPU time of the monitor.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use isotherm_record::{Contents, Event, Needs, Recorder, Recording};
use isotherm_run::{RunConfig, Source, SurveyChoice};
use isotherm_sim::Pattern;

/// Record simulated memory
#[derive(Parser)]
struct Options {
    /// How long the recording is
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    seconds: u64,
    /// Where it is written to
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

/// A longer recording repeats its first minutes: simulating a day takes too long.
const SIMULATED: Duration = Duration::from_secs(600);

/// The time from a survey to the next.
const SURVEY: Duration = Duration::from_millis(900);

/// A server of 1 GiB: some of it is used all the time, some from time to time, and most of it is idle. What is hot
/// moves each half minute.
fn pattern(seconds: u64) -> Result<Pattern> {
    let sizes = [32, 32, 64, 128, 256, 512];
    let areas =
        sizes.iter().enumerate().map(|(nth, size)| format!("[[area]]\nname = \"{nth}\"\nsize = \"{size} MiB\"\n"));
    let phase = |nth: u64| {
        let touch = [(nth % 2, "2ms"), (2, "20ms"), (3, "300ms"), (4 + nth % 2, "20s")];
        let touch = touch.map(|(area, every)| format!("{{ area = \"{area}\", every = \"{every}\" }}"));
        format!("[[phase]]\ntime = \"30s\"\ntouch = [{}]\n", touch.join(", "))
    };
    let about = "about = \"a server of 1 GiB\"\n".to_owned();
    let text: String = std::iter::once(about).chain(areas).chain((0..seconds.div_ceil(30)).map(phase)).collect();
    Ok(Pattern::parse(&text)?)
}

/// Runs the simulation and records it.
fn simulate(time: Duration, output: &std::path::Path) -> Result<()> {
    let mut config = RunConfig::new(Source::Simulation(Box::new(pattern(time.as_secs())?)));
    config.survey = SurveyChoice::Every(SURVEY);
    config.duration = Some(time);
    config.seed = Some(1);
    config.recording = Some(output.into());
    config.prepare()?.start()?.wait().map_err(|error| anyhow::anyhow!("{error}"))?;
    Ok(())
}

/// Writes the events of `recording` again and again, up to `end`.
fn repeat(recording: &Recording, end: Duration, output: &std::path::Path) -> Result<()> {
    let contents = Contents { surveys: true, live: true, ..Contents::default() };
    let mut recorder = Recorder::create_with(output, recording.header(), contents)?;
    for start in (0..).map(|nth| SIMULATED * nth).take_while(|start| *start < end) {
        for event in recording.events(Needs::SNAPSHOTS | Needs::SURVEYS) {
            let mut event = event?;
            if event.time() + start > end {
                break;
            }
            match &mut event {
                Event::Snapshot(record) => {
                    record.snapshot.time += start;
                    recorder.write(record)?;
                }
                // There is one first survey.
                Event::Survey(record) if start.is_zero() || !record.survey.interval.is_zero() => {
                    record.survey.time += start;
                    recorder.write_survey(record)?;
                }
                Event::Survey(_)
                | Event::Panel(_)
                | Event::Activity(_)
                | Event::Mark(_)
                | Event::Allocations(_)
                | Event::Missed(_) => {}
            }
        }
    }
    recorder.finish()?;
    Ok(())
}

fn main() -> Result<()> {
    let options = Options::parse();
    let time = Duration::from_secs(options.seconds);
    if time <= SIMULATED {
        return simulate(time, &options.output);
    }
    let part = options.output.with_extension("part");
    simulate(SIMULATED, &part)?;
    repeat(&Recording::open(&part)?, time, &options.output)?;
    std::fs::remove_file(&part).with_context(|| format!("{} cannot be removed", part.display()))
}
