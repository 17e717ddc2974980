//! Where the source names files of `/proc` that make a process wait.

use std::fs;
use std::path::{Path, PathBuf};

/// Files of `/proc/PID` for which the kernel walks the page tables of a process or of a mapping. The process waits.
const HOLDS: [&str; 3] = ["smaps_rollup", "smaps", "numa_maps"];

/// Where which of these files is read, and why.
const HOLDERS: [(&str, &str, &str); 3] = [
    ("isotherm-eval/src/sampler.rs", "smaps_rollup", "programs that an evaluation runs, in each configuration alike"),
    ("isotherm-probes/src/doctor.rs", "smaps", "names the files of the probe refs"),
    ("isotherm-probes/src/refs.rs", "smaps", "the probe that has nothing else, which says how long it takes"),
];

/// The places where a source names a file of [`HOLDS`] in a string and must not.
pub fn long_holds(crates: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for file in sources(crates) {
        let name = file.strip_prefix(crates).unwrap().to_str().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
        for (nth, line) in lines {
            let strings = line.split('"').skip(1).step_by(2);
            let mut names = strings.flat_map(|text| text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
            if let Some(held) = names.find(|name| HOLDS.contains(name)) {
                found.push((name.to_owned(), nth + 1, held.to_owned()));
            }
        }
    }
    let allowed = |name: &str, held: &str| HOLDERS.iter().any(|(place, file, _)| (*place, *file) == (name, held));
    found.retain(|(name, _, held)| !allowed(name, held));
    found.into_iter().map(|(name, line, held)| format!("{name}:{line}: {held}")).collect()
}

/// The source files of a directory, without those of tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let (mut found, mut ahead) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(directory) = ahead.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            match path.extension() {
                _ if path.file_stem().is_some_and(|name| name.to_str().unwrap().ends_with("tests")) => {}
                _ if path.is_dir() => ahead.push(path),
                Some(extension) if extension == "rs" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
