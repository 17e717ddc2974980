//! Writes levels of a recording: `cargo run --release -p isotherm-record --example level -- REC MINUTE HOUR`.

use std::path::PathBuf;

use isotherm_record::{Level, Recording, level};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [recording, minute, hour] = &paths[..] else { return Err("give a recording and two outputs".into()) };
    level(&Recording::open(recording)?, Level::Minute, minute)?;
    level(&Recording::open(minute)?, Level::Hour, hour)?;
    for path in [recording, minute, hour] {
        println!("{}: {} bytes", path.display(), std::fs::metadata(path)?.len());
    }
    Ok(())
}
