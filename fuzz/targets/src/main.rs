//! Writes valid inputs for the fuzz targets: `cargo run -p isotherm-fuzz-targets -- DIRECTORY` makes
//! `DIRECTORY/TARGET/seed-N`.

use std::path::Path;

use isotherm_fuzz_targets::TARGETS;

fn main() -> std::io::Result<()> {
    let directory = std::env::args_os().nth(1).unwrap_or_else(|| "fuzz/corpus".into());
    for target in TARGETS {
        let directory = Path::new(&directory).join(target.name);
        std::fs::create_dir_all(&directory)?;
        for (i, seed) in (target.seeds)().into_iter().enumerate() {
            std::fs::write(directory.join(format!("seed-{i}")), seed)?;
        }
    }
    Ok(())
}
